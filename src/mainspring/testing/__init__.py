"""Replaying and branching recorded sessions."""
