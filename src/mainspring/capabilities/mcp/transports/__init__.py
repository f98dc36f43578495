"""How messages reach a server."""
