"""Grades a trial: checks, judges, people's labels."""
