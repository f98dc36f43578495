"""Sessions as clients see them: create, send, list, stream."""
