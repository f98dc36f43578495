"""Suites and results in the formats of other tools. Each module reads and writes one of them."""
