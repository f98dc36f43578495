"""What people describe: agents with their versions, environments, skills, files."""
