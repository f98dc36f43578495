"""Commands about suites, their runs, and whether they can be trusted."""
