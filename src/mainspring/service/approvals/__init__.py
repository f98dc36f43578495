"""Calls that wait for a person: who may answer, the deadline, and who answered."""
