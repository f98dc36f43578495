"""Moving a session to another store, with its workspace: at any time at most one copy goes on."""
