"""The files of a session: a folder of the host, and snapshots of it."""
