"""Routes of what a tenant stores: agents, environments, skills, files, vaults, schedules."""
