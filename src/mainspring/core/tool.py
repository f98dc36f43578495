"""A tool: what the model is told, what it does, and what each single call of it is like."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mainspring.core.content import Block, TextBlock
from mainspring.core.model import ToolSpec

InDoubt: TypeAlias = Literal["retry", "probe", "ask", "report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    id: str
    name: str
    input: Mapping[str, object]
    idempotency_key: str
    """The same for every attempt at this call, and for no other call."""
    session_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    content: tuple[Block, ...]
    """What the model reads."""
    ok: bool = True
    details: object = None
    """What people see; never sent to the model."""

    @classmethod
    def text(cls, text: str, *, ok: bool = True) -> Outcome:
        return cls((TextBlock(text),), ok)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What one call, with its input, is like. The defaults are the safe ones."""

    read_only: bool = False
    concurrent: bool = False
    destructive: bool = False
    in_doubt: InDoubt = "report"
    """How a call that was started and not settled before a crash is settled."""
    on_interrupt: Literal["cancel", "block"] = "cancel"
    max_chars: int = 30_000


SAFE_READ = Traits(read_only=True, concurrent=True, in_doubt="retry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    spec: ToolSpec
    run: Callable[[Call], Awaitable[Outcome]]
    """A failure that the model can act on is an `Outcome` that is not ok, not an exception."""
    traits: Callable[[Mapping[str, object]], Traits] = lambda _: Traits()
    probe: Callable[[Call], Awaitable[Outcome | None]] | None = None
    """What became of an earlier attempt: its outcome, or `None` if it never happened."""
    invalid: Callable[[Mapping[str, object]], str | None] = lambda _: None
    """What is wrong with an input, in words for the model."""
