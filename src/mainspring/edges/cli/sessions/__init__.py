"""Commands about sessions and their logs: list, read, move, rewind, replay, cost."""
