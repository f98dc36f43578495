"""Vaults and their credentials: written, used, never shown."""
