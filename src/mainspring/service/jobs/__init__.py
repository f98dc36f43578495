"""Dispatch and workers: jobs that are done once, soon or at a given time."""
