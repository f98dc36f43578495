"""Utility: what memories, skills, prompt fragments and tools were worth, learned from how work
ended."""
