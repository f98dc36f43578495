"""The ready suites: files beside this one, to read, and to copy into an agent's folder."""

from __future__ import annotations

from pathlib import Path

from mainspring.core.errors import InvalidInput

READY_SUITES = ("safety", "tool-use", "context-use", "consistency", "privacy", "coding")


def ready_suite_file(name: str) -> Path:
    """Raises: InvalidInput: no suite has that name."""
    if name not in READY_SUITES:
        raise InvalidInput(f"there is no ready suite {name}; there are {', '.join(READY_SUITES)}")
    return Path(__file__).with_name(f"{name}.yaml")
