"""Webhooks: who is told, what, and until it has arrived."""
