"""Programs of servers: their packages and the files that they need."""
