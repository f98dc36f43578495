"""Readers and writers of the files that describe agents, skills and plugins."""
