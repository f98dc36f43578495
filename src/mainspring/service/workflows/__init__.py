"""Workflows of tenants, and their runs."""
