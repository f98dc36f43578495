"""Events that clients send, and their payloads in the log: checked, with files inlined and skill
commands (`/name arguments`) expanded.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from typing import Annotated, Literal, TypeAlias, assert_never
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core.content import (
    Base64Source,
    Block,
    DocumentBlock,
    FileSource,
    ImageBlock,
    PlainTextSource,
    RedactedBlock,
    SearchResultBlock,
    TextBlock,
    UrlSource,
)
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.events import (
    ClientPayload,
    FeedbackGiven,
    FileRubric,
    RatedSubject,
    RatedType,
    SystemMessage,
    TextRubric,
    UserCustomToolResult,
    UserDefineOutcome,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
    UserToolResult,
)
from mainspring.core.ids import ExternalId, ThreadId, ToolUseId
from mainspring.runtime.skills.skill_command import expand_command
from mainspring.runtime.skills.substitution import SkillFacts
from mainspring.runtime.slash_commands import parse_command
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.resource_types import FileContent, ResourceLookups
from mainspring.service.sessions.session_agent import skills_of
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.metadata import copy_fields

MAX_EVENTS = 100  # of one request
MAX_INITIAL_EVENTS = 50  # of a new session
MAX_RUBRIC_CHARS = 262_144  # about 65,000 tokens, which every grading reads
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


class SendRatedSubject(Struct, frozen=True, kw_only=True):
    type: RatedType
    id: Annotated[ExternalId, Meta(min_length=1, max_length=1024)]
    """The id of something in this session, or the name of something outside it."""
    version: Annotated[str, Meta(max_length=256)] | None = None


class SendFeedback(Struct, frozen=True, kw_only=True, tag_field="type", tag="feedback.given"):
    """An extension: a person's rating of a message, a call or a session."""

    subject: SendRatedSubject
    rating: Literal["good", "bad"]
    text: Annotated[str, Meta(max_length=10_000)] | None = None


SentEvent: TypeAlias = (
    SendMessage
    | SendInterrupt
    | SendConfirmation
    | SendCustomResult
    | SendResult
    | SendOutcome
    | SendSystem
    | SendFeedback
)
InitialEvents = Annotated[
    tuple[SendMessage | SendOutcome | SendSystem, ...], Meta(max_length=MAX_INITIAL_EVENTS)
]


class SendEvents(Struct, frozen=True, kw_only=True):
    events: Annotated[tuple[SentEvent, ...], Meta(min_length=1, max_length=MAX_EVENTS)]


IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_FILE_BYTES = 32 * 1024 * 1024  # of an attached file, as of a request's body
Source: TypeAlias = Base64Source | PlainTextSource | UrlSource


def with_shared_file_limit(lookups: ResourceLookups) -> ResourceLookups:
    """Lookups for one request, whose files share the size limit of one file: all are in memory at
    once, and a request can name thousands."""
    remaining = MAX_FILE_BYTES

    async def file_content(tenant: str, file_id: str) -> FileContent:
        nonlocal remaining
        file = await lookups.file_content(tenant, file_id)
        remaining -= len(file.content)
        if remaining < 0:
            raise InvalidInput(
                f"the files of one request may have at most {MAX_FILE_BYTES} bytes in total"
            )
        return file

    return dataclasses.replace(lookups, file_content=file_content)


async def to_payload(
    lookups: ResourceLookups, tenant: str, sent: SentEvent, *, where: str
) -> ClientPayload:
    """The payload for the log; whether it fits the session is checked elsewhere.

    Raises: InvalidInput, NotFound: a file.
    """
    match sent:
        case SendMessage():
            return UserMessage(content=await _content(lookups, tenant, sent.content, where))
        case SendInterrupt():
            return copy_fields(UserInterrupt, sent)
        case SendConfirmation():
            return _confirmation(sent, where)
        case SendCustomResult() | SendResult():
            type_ = UserToolResult if isinstance(sent, SendResult) else UserCustomToolResult
            content = await _content(lookups, tenant, sent.content, where)
            return copy_fields(type_, sent, content=content, is_error=bool(sent.is_error))
        case SendOutcome():
            return await _outcome(lookups, tenant, sent, where)
        case SendSystem():
            return copy_fields(SystemMessage, sent)
        case SendFeedback():
            subject = copy_fields(RatedSubject, sent.subject)
            return copy_fields(FeedbackGiven, sent, subject=subject)
        case _:
            assert_never(sent)


def _confirmation(params: SendConfirmation, where: str) -> UserToolConfirmation:
    if params.deny_message is not None and params.result != "deny":
        raise InvalidInput(f"{where}.deny_message: allowed only with the result deny")
    return copy_fields(UserToolConfirmation, params)


async def _outcome(
    lookups: ResourceLookups, tenant: str, params: SendOutcome, where: str
) -> UserDefineOutcome:
    rubric = params.rubric
    if isinstance(rubric, FileRubric):
        file = await _file(lookups, tenant, rubric.file_id, f"{where}.rubric")
        rubric = TextRubric(content=_text(file, f"{where}.rubric"))
    if not 1 <= len(rubric.content) <= MAX_RUBRIC_CHARS:
        raise InvalidInput(f"{where}.rubric: must have 1 to {MAX_RUBRIC_CHARS} characters")
    return copy_fields(UserDefineOutcome, params, rubric=rubric)


async def _content(
    lookups: ResourceLookups, tenant: str, params: tuple[SentBlock | ResultBlock, ...], where: str
) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for index, block in enumerate(params):
        at = f"{where}.content[{index}]"
        match block:
            case ImageParams(source=source):
                blocks.append(ImageBlock(source=await _image(lookups, tenant, source, at)))
            case DocumentParams(source=source, title=title, context=context):
                resolved_source = await _document(lookups, tenant, source, at)
                blocks.append(DocumentBlock(source=resolved_source, title=title, context=context))
            case _:
                blocks.append(block)
    return tuple(blocks)


async def _image(
    lookups: ResourceLookups, tenant: str, source: Base64Source | UrlSource | FileSource, where: str
) -> Base64Source | UrlSource:
    match source:
        case UrlSource():
            return _check_url(source, where)
        case Base64Source():
            image_source = _check_base64(source, where)
        case FileSource(file_id=file_id):
            image_source = _encoded(await _file(lookups, tenant, file_id, where))
    if image_source.media_type not in IMAGE_TYPES:
        media_type = image_source.media_type
        raise InvalidInput(f"{where}: {media_type} is not one of {sorted(IMAGE_TYPES)}")
    return image_source


async def _document(
    lookups: ResourceLookups,
    tenant: str,
    source: Base64Source | PlainTextSource | UrlSource | FileSource,
    where: str,
) -> Source:
    match source:
        case UrlSource():
            return _check_url(source, where)
        case PlainTextSource():
            return source
        case Base64Source():
            return _check_base64(source, where)
        case FileSource(file_id=file_id):
            file = await _file(lookups, tenant, file_id, where)
            if file.media_type.startswith("text/"):
                return PlainTextSource(data=_text(file, where))
            return _encoded(file)


async def _file(lookups: ResourceLookups, tenant: str, file_id: str, where: str) -> FileContent:
    try:
        file = await lookups.file_content(tenant, file_id)
    except NotFound as error:
        raise InvalidInput(f"{where}: {error}") from error
    if len(file.content) > MAX_FILE_BYTES:
        raise InvalidInput(f"{where}: the file may have at most {MAX_FILE_BYTES} bytes")
    return file


def _text(file: FileContent, where: str) -> str:
    try:
        return file.content.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{where}: the file is not text in UTF-8") from None


def _encoded(file: FileContent) -> Base64Source:
    data = base64.b64encode(file.content).decode()
    return Base64Source(media_type=file.media_type, data=data)


def _check_base64(source: Base64Source, where: str) -> Base64Source:
    try:
        base64.b64decode(source.data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{where}.source.data: not base64") from None
    return source


def _check_url(source: UrlSource, where: str) -> UrlSource:
    try:
        parts = urlsplit(source.url)
    except ValueError:
        raise InvalidInput(f"{where}.source.url: not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"{where}.source.url: must begin with https:// or http://")
    return source


async def expand_skill_command(
    dependencies: SessionDependencies, tenant: str, session: SessionRecord, payload: ClientPayload
) -> ClientPayload:
    """Replace a skill command by the text of the skill. Other payloads are unchanged: a message may
    begin with a slash and be no command.

    Raises: InvalidInput: the skill is missing or has changed.
    """
    if not isinstance(payload, UserMessage) or not skills_of(session.agent):
        return payload
    first, *more = payload.content
    command = parse_command(first.text) if isinstance(first, TextBlock) else None
    if command is None or not isinstance(first, TextBlock):
        return payload
    actor = await dependencies.resolved_agent(tenant, session)
    skills = actor.agent.skills
    if not any(skill.for_user and skill.name == command.name for skill in skills):
        return payload
    facts = SkillFacts(session_id=session.id, project=actor.workspace, effort=actor.agent.effort)
    expanded = await expand_command(first.text, skills=skills, skill_facts=facts)
    if expanded is None:
        return payload
    blocks, skill_used = expanded
    return replace(payload, content=(*blocks, *more), skill=skill_used.name)
