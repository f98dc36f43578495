"""Runs the trials of a suite."""
