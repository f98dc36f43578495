"""Calls that wait for a person: who may answer, by when, and who did."""
