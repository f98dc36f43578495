"""How programs and tools reach hosts: rules, a proxy that holds to them, stand-ins for secrets."""
