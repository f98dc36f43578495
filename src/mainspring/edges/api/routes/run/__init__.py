"""Routes of sessions: events, threads, resources, approvals, reports."""
