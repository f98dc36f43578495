"""Vaults and their credentials: written and used, but never shown."""
