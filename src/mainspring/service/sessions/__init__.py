"""Sessions as clients see them: creating, sending, listing, streaming."""
