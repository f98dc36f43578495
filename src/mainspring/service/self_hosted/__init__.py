"""Work for clients with hands of their own."""
