"""What starts sessions automatically: deployments with schedules, and triggers."""
