"""Dreams: passes over past sessions that propose changes of memories, with evidence."""
