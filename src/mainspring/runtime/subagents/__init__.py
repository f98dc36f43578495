"""The threads of a session besides the main one: who may be called, and who is at work."""
