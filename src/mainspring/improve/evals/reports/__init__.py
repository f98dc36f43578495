"""Runs as files for people and build servers, and their trend."""
