"""Webhooks: endpoints, events, and deliveries with retries."""
