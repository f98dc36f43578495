"""What a session remembers by itself: statements, facts, and what they do to notes."""
