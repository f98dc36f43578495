"""Dreams of the Managed Agents API: jobs over memory stores and sessions."""
