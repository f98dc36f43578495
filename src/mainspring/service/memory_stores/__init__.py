"""Memory stores: files with versions and preconditions."""
