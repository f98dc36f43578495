"""Subagents: their types, the tools that call them, and the threads that run them."""
