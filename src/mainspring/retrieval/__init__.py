"""Ranking of texts by a query, for tool search, the skill list and (later) memory."""
