"""Work for clients that run tools on their own machines."""
