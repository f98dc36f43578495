"""Authentication of requests and what a key of limited scope may name."""
