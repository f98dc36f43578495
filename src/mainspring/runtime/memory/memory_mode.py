"""Whether a session reads and writes memories, and who writes what it teaches."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, TypeAlias

from msgspec import Struct

MemoryMode: TypeAlias = Literal["on", "read_only", "off"]
MEMORY_MODES: tuple[MemoryMode, ...] = ("on", "read_only", "off")
"""From the least strict to the strictest."""
LearnMode: TypeAlias = Literal["model", "rules", "off"]
LEARN_MODES: tuple[LearnMode, ...] = ("model", "rules", "off")
"""`model`: rules, then a small model; `off`: only memory tools write."""
LEARN_USD = Decimal("0.05")
"""What a session may spend on learning by default: about 20 requests of 2,000 tokens at the price
of a small model, one for each run of a long conversation."""
MEMORY_KEY = "memory"
"""The key of the mode in a session's metadata; absent if the mode is `on`."""


class MemoryLearning(Struct, frozen=True, kw_only=True):
    """How a session learns from what people say."""

    by: LearnMode = "rules"
    max_usd: Decimal = LEARN_USD
    """What a model may cost in one session."""


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
