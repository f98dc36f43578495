"""Whether a session reads and writes memories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

MemoryMode: TypeAlias = Literal["on", "read_only", "off"]
MEMORY_MODES: tuple[MemoryMode, ...] = ("on", "read_only", "off")
"""From the least strict to the strictest."""
MEMORY_KEY = "memory"
"""The key of the mode in a session's metadata; absent if the mode is `on`."""


def read_memory_mode(text: str | None) -> MemoryMode:
    """Read the mode from a session's metadata. An unknown word switches memory off."""
    match text:
        case None | "on":
            return "on"
        case "read_only":
            return "read_only"
        case _:
            return "off"


def with_memory_mode(metadata: Mapping[str, str], mode: MemoryMode) -> dict[str, str]:
    """Return a session's metadata with the mode set."""
    other_keys = {key: value for key, value in metadata.items() if key != MEMORY_KEY}
    return other_keys if mode == "on" else {**other_keys, MEMORY_KEY: mode}


def strictest_memory(*modes: MemoryMode) -> MemoryMode:
    return max(modes, key=MEMORY_MODES.index)
