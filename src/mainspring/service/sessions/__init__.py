"""Sessions as clients see them: made, spoken to, listed, streamed."""
