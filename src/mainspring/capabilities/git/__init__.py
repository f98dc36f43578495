"""Git on the host: untrusted repositories, their configurations, worktrees and clones."""
