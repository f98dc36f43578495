"""Packages that people install (skills and plugins): fetched, scanned, installed, trusted."""
