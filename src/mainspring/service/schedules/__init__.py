"""What starts sessions by itself: deployments with schedules, and triggers."""
