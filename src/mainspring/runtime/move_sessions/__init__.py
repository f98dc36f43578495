"""Moves a session to another store, with its workspace: at most one copy continues at any time."""
