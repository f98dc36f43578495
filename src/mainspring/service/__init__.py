"""The service that a team runs: tenants and what they keep, dispatch, approvals, schedules."""
