"""Eval suites: read, run, grade, compare."""
