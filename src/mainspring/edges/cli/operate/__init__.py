"""Commands of operators: the service, its tenants, keys, schedules, approvals and backups."""
