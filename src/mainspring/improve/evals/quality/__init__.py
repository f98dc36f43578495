"""Whether a suite, its judges and its rewards can be trusted."""
