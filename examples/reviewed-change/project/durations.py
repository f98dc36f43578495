"""Durations as people write them."""

UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> int:
    """The seconds in a duration such as `90s`, `5m` or `2h`."""
    return int(text[:-1]) * UNITS[text[-1]]
