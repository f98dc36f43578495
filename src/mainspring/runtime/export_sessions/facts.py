"""What stands at the head of an exported session."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.runtime.outline import Outline


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str


def facts_of(outline: Outline) -> list[Fact]:
    usage = outline.usage
    read = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    known = (
        ("Session", outline.id),
        ("Agent", outline.agent),
        ("Model", outline.model),
        ("Created", f"{outline.created:%Y-%m-%d %H:%M} UTC"),
        ("Last change", f"{outline.updated:%Y-%m-%d %H:%M} UTC"),
        ("Status", outline.reason or outline.status),
        ("Turns", str(outline.turns)),
        ("Tokens", f"{read:,} in, {usage.output_tokens:,} out"),
        ("Cost", f"${outline.cost_usd:.4f}"),
    )
    return [Fact(name, value) for name, value in known if value]
