"""Resources that people define: agents with their versions, environments, skills, files."""
