"""What the logs of many sessions show together: waste, failures, missing rules, unused tools."""
