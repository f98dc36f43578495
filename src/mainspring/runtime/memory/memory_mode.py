"""Whether a session reads and writes memories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

MemoryMode: TypeAlias = Literal["on", "read_only", "off"]
MEMORY_MODES: tuple[MemoryMode, ...] = ("on", "read_only", "off")
"""The strictest last."""
MEMORY_KEY = "memory"
"""Of a session's metadata: its mode, if that is not `on`."""


def read_memory_mode(text: str | None) -> MemoryMode:
    """Of a session's metadata; a word that nobody knows switches memory off."""
    match text:
        case None | "on":
            return "on"
        case "read_only":
            return "read_only"
        case _:
            return "off"


def with_memory_mode(metadata: Mapping[str, str], mode: MemoryMode) -> dict[str, str]:
    """The metadata of a session that has a mode."""
    rest = {key: value for key, value in metadata.items() if key != MEMORY_KEY}
    return rest if mode == "on" else {**rest, MEMORY_KEY: mode}


def strictest_memory(*modes: MemoryMode) -> MemoryMode:
    return max(modes, key=MEMORY_MODES.index)
