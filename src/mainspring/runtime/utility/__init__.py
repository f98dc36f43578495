"""Utility: what memories, skills, prompt fragments and tools were worth, learned from the outcomes
of sessions."""
