"""`mainspring workflow`: check, start and steer workflows."""
