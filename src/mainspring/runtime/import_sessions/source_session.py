"""A session as another tool recorded it, in the one form that all readers produce."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from mainspring.core.content import Block
from mainspring.core.events import Usage

Format: TypeAlias = Literal["claude-code", "codex", "pi", "openhands"]
FORMATS: tuple[Format, ...] = ("claude-code", "codex", "pi", "openhands")
SourceFormat: TypeAlias = Format | Literal["mainspring"]
"""`mainspring` is a session that another installation pushed."""
TOOL_NAMES: dict[SourceFormat, str] = {
    "mainspring": "another installation of Mainspring",
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
    "openhands": "OpenHands",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFinding:
    """Something in a file that could not be imported."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePrompt:
    """Text or images that the model got outside tool results."""

    id: str
    time: datetime | None
    content: tuple[Block, ...]
    is_person: bool = True
    """Whether a person wrote it; otherwise the tool did."""


@dataclass(frozen=True, slots=True)
class SourceThinking:
    text: str


@dataclass(frozen=True, slots=True)
class SourceText:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCall:
    id: str
    name: str
    input: dict[str, object]


SourcePart: TypeAlias = SourceThinking | SourceText | SourceCall


@dataclass(slots=True, kw_only=True)
class SourceReply:
    """One answer of the model."""

    id: str
    time: datetime | None
    parts: list[SourcePart] = field(default_factory=list[SourcePart])
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCompaction:
    """From here on, the model got a summary of the conversation before."""

    id: str
    time: datetime | None
    summary: str
    first_kept_id: str | None = None
    """The first item that the model still got unchanged; `None` if there is none."""


SourceItem: TypeAlias = SourcePrompt | SourceReply | SourceCompaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCallResult:
    id: str
    time: datetime | None
    content: tuple[Block, ...]
    is_error: bool = False


@dataclass(slots=True, kw_only=True)
class SourceThread:
    """A conversation: that of the session, or of a subagent."""

    items: list[SourceItem] = field(default_factory=list[SourceItem])
    results: dict[str, SourceCallResult] = field(default_factory=dict[str, SourceCallResult])
    """The results by call id."""
    open_calls: frozenset[str] = frozenset()
    """The ids of calls in the last reply that never started: they stay open, and our permission
    rules decide about them."""


@dataclass(slots=True, kw_only=True)
class SourceSubagent:
    id: str
    name: str
    call_id: str | None
    """The call that started it, if known."""
    thread: SourceThread
    description: str | None = None


@dataclass(slots=True, kw_only=True)
class SourceSession:
    format: SourceFormat
    path: str
    id: str = ""
    title: str | None = None
    started: datetime | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    """The folder it ran in and the version of the tool, if the file has them."""
    main: SourceThread = field(default_factory=SourceThread)
    source_subagents: list[SourceSubagent] = field(default_factory=list[SourceSubagent])
    sha256: str = ""
    findings: list[ImportFinding] = field(default_factory=list[ImportFinding])
    left_out: Counter[str] = field(default_factory=Counter[str])
    """The number of entries outside the conversation, by kind."""

    @property
    def is_empty(self) -> bool:
        return not any(isinstance(item, SourcePrompt | SourceReply) for item in self.main.items)
