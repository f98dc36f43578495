"""Memory: files that people can read, with versions, and an index that can be rebuilt."""
