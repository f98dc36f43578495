"""Campaigns in the log, and how people see them."""
