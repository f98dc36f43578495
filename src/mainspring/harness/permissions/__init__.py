"""Whether a call may run: rules, modes, grants, and the analysis of shell commands."""
