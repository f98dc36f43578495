"""Routes of operators: keys, tenants, audit, health, webhooks."""
