"""The service that a team runs: tenants and their resources, dispatch, approvals, schedules."""
