"""Runs small generated Python programs in an interpreter without access to the system."""
