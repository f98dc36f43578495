"""Search over notes and past sessions."""
