"""Secrets: kept encrypted, known by name, recognised wherever they turn up."""
