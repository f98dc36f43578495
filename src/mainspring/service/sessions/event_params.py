"""Events as clients may send them: what the API allows, and nothing of ours."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from mainspring.core.content import (
    Base64Source,
    FileSource,
    PlainTextSource,
    RedactedBlock,
    SearchResultBlock,
    TextBlock,
    UrlSource,
)
from mainspring.core.events import FileRubric, TextRubric
from mainspring.core.ids import ThreadId, ToolUseId

MAX_EVENTS = 100
MAX_INITIAL_EVENTS = 50
MAX_RUBRIC_CHARS = 262_144
CallId = Annotated[ToolUseId, Meta(min_length=1, max_length=128)]


class ImageParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="image"):
    source: Base64Source | UrlSource | FileSource


class DocumentParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="document"):
    source: Base64Source | PlainTextSource | UrlSource | FileSource
    title: str | None = None
    context: str | None = None


SentBlock: TypeAlias = TextBlock | ImageParams | DocumentParams | RedactedBlock
ResultBlock: TypeAlias = TextBlock | ImageParams | DocumentParams | SearchResultBlock
SentContent = Annotated[tuple[SentBlock, ...], Meta(min_length=1, max_length=1000)]
ResultContent = Annotated[tuple[ResultBlock, ...], Meta(max_length=1000)]


class SendMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="user.message"):
    content: SentContent


class SendInterrupt(Struct, frozen=True, kw_only=True, tag_field="type", tag="user.interrupt"):
    session_thread_id: ThreadId | None = None


class SendConfirmation(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="user.tool_confirmation"
):
    tool_use_id: CallId
    result: Literal["allow", "deny"]
    deny_message: Annotated[str, Meta(max_length=10_000)] | None = None


class SendCustomResult(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="user.custom_tool_result"
):
    custom_tool_use_id: CallId
    content: ResultContent = ()
    is_error: bool | None = None


class SendResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="user.tool_result"):
    tool_use_id: CallId
    content: ResultContent = ()
    is_error: bool | None = None


class SendOutcome(Struct, frozen=True, kw_only=True, tag_field="type", tag="user.define_outcome"):
    description: Annotated[str, Meta(min_length=1, max_length=100_000)]
    rubric: TextRubric | FileRubric
    max_iterations: Annotated[int, Meta(ge=1, le=20)] | None = None


class SendSystem(Struct, frozen=True, kw_only=True, tag_field="type", tag="system.message"):
    content: Annotated[tuple[TextBlock, ...], Meta(min_length=1, max_length=1000)]


SentEvent: TypeAlias = (
    SendMessage
    | SendInterrupt
    | SendConfirmation
    | SendCustomResult
    | SendResult
    | SendOutcome
    | SendSystem
)
InitialEvents = Annotated[
    tuple[SendMessage | SendOutcome | SendSystem, ...], Meta(max_length=MAX_INITIAL_EVENTS)
]


class SendEvents(Struct, frozen=True, kw_only=True):
    events: Annotated[tuple[SentEvent, ...], Meta(min_length=1, max_length=MAX_EVENTS)]
