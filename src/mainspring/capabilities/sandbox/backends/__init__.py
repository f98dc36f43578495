"""How each backend isolates programs, and the first process inside."""
