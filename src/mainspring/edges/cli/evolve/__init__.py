"""`mainspring evolve`: agents that get better from their own record."""
