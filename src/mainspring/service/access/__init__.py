"""Who may come in: tenants, keys, the door, limits, budgets, the kill switch, the audit."""
