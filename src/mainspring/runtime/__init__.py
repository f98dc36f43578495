"""Many sessions over time: start, send, wake, interrupt, follow."""
