"""May this call run? Rules, modes, grants and what a shell command really does."""
