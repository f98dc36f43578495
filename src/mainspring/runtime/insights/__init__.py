"""Insights from the logs of many sessions: waste, failures, missing rules, unused tools."""
