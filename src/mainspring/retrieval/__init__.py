"""Ranks texts by a query, for tool search, the skill list, memories and documents."""
