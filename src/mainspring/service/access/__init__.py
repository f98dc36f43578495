"""Access: tenants, keys, rate limits, budgets, the kill switch, the audit log."""
