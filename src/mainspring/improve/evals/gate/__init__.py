"""The gate of a suite: what it compares with, and when it closes."""
