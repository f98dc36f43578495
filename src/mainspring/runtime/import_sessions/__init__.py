"""Sessions of other tools, read from their files and stored as sessions of our own log."""
