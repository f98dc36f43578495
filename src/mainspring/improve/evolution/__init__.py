"""Evolution: agents that get better from their own record, and provably not worse."""
