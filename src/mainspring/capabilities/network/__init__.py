"""How programs and tools reach hosts: rules, a proxy that enforces them, and placeholders for
secrets."""
