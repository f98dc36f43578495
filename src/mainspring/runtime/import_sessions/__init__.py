"""Imports sessions of other tools: reads their files and stores them as sessions in our log."""
