"""Reads and writes suites and results in the formats of other tools, with a module for each."""
