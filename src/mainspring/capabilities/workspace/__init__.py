"""The files that a session may touch: a folder of the host, and earlier states of it."""
