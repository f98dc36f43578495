"""Skills that are in use come back after a compaction has taken their text out of sight."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.core.content import Block, TextBlock
from mainspring.core.facts import ContextAdded
from mainspring.core.model import Assistant, ToolResult
from mainspring.harness.desk import Desk

MAX_TOKENS = 25_000
_MAX_CHARS = 20_000
"""Of each: about 5,000 tokens."""
_AGAIN = "The text of a skill that you use, which was taken out of this conversation to save space:"


def skills_again(desk: Desk, *, max_tokens: int) -> list[ContextAdded]:
    """Those that the model does not see any more, the newest first as long as there is room."""
    room = min(max_tokens, MAX_TOKENS) * desk.facts.bytes_per_token
    seen = list(_texts(desk)) if desk.thread.gear.skill_texts else []
    found: list[ContextAdded] = []
    for name, whole in reversed(desk.thread.gear.skill_texts.items()):
        text = whole[:_MAX_CHARS]
        room -= len(text.encode())
        if room < 0:
            break
        if not any(text in each for each in seen):
            found.append(ContextAdded(text=f"{_AGAIN}\n{text}", source=f"skill {name}"))
    return found


def _texts(desk: Desk) -> Iterator[str]:
    """All that the next request says, but for the model's own words."""
    transcript = desk.thread.transcript
    parts: list[Block | ToolResult] = [*transcript.open_results, *transcript.open_words]
    for message in transcript.messages:
        if not isinstance(message, Assistant):
            parts += message.content
    for part in parts:
        for block in part.content if isinstance(part, ToolResult) else (part,):
            if isinstance(block, TextBlock):
                yield block.text
