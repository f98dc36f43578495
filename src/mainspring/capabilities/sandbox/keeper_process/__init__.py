"""The keeper: the process beside a sandbox that runs programs and keeps their results."""
