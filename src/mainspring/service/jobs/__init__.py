"""Dispatch and workers: jobs that run once, now or at a given time."""
