"""Options that have no scene yet. Nothing may be added here."""

UNPROVEN: set[tuple[str, str]] = set()
