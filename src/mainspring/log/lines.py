"""The lines in which sessions are stored outside a database. An export has sessions only; a backup
begins with a header, has all records and counters, too, and ends with a footer. `container.py`
reads both.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from mainspring.core.clock import from_micros
from mainspring.core.envelope import EventLine
from mainspring.core.errors import InvalidInput
from mainspring.core.sender import Sender, decode_sender
from mainspring.log.records import RecordRow
from mainspring.log.store import InboxItem, SessionRow

BACKUP_FORMAT: Final = 1  # its version


class SessionLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="session"
):
    session_id: str
    thread_id: str
    created: Annotated[datetime, Meta(tz=True)]
    parent_id: str | None = None
    parent_seq: int = 0


class BlobLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="blob"):
    hash: str
    content: str
    """Base64."""


class InboxLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="inbox"
):
    """A client's event that is pending in the inbox, or the client id of an event in the log."""

    client_id: str
    event_id: str
    time: Annotated[datetime, Meta(tz=True)]
    seq: int | None = None
    """Its position in the log; the other fields are in that event."""
    thread_id: str = ""
    version: int = 0
    payload: Raw = Raw()
    sender: Sender | None = None
    mac: bytes | None = None
    """Of a pending event: proves that this installation wrote it."""


class EndLine(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="end"):
    """Ends a session, so that a truncated file is detected."""

    session_id: str
    seq: int
    hash: str
    blobs: int = 0
    """The number of blobs. The hash chain does not cover blobs and inbox items."""
    inbox: int = 0
    """The number of inbox items."""
    mac: bytes | None = None
    """The session's, if the export is whole: the installation that wrote it recognizes it."""


class HeaderLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="backup"):
    format: int = BACKUP_FORMAT
    time: Annotated[datetime, Meta(tz=True)]
    """When the backup began. Everything in it is as of this moment."""


class RunningLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="at_work"):
    """The session was running, even if its inbox is empty."""

    session_id: str


class RecordLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="record"
):
    record: RecordRow
    chunks: int | None = None
    """How many of the following lines contain its content; `None` if it has no content."""


class ContentLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="content"):
    content: bytes


class TallyLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="tally"):
    name: str
    amount: int


class FooterLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="seal"):
    sessions: int
    records: int
    tallies: int
    sha256: str


class _Kind(Struct):
    line: str | None = None


Line: TypeAlias = (
    SessionLine
    | BlobLine
    | InboxLine
    | EndLine
    | EventLine
    | HeaderLine
    | RunningLine
    | RecordLine
    | ContentLine
    | TallyLine
    | FooterLine
)

_KINDS = msgspec.json.Decoder(_Kind)
_FRAMES = msgspec.json.Decoder(
    SessionLine
    | BlobLine
    | InboxLine
    | EndLine
    | HeaderLine
    | RunningLine
    | RecordLine
    | ContentLine
    | TallyLine
    | FooterLine
)
_EVENTS = msgspec.json.Decoder(EventLine)

encode = msgspec.json.Encoder().encode


def decode(raw: bytes) -> Line:
    try:
        kind = _KINDS.decode(raw).line
        return _EVENTS.decode(raw) if kind is None else _FRAMES.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not a line of an exported session or a backup: {error}") from error


def header_line(session: SessionRow) -> SessionLine:
    return SessionLine(
        session_id=session.id,
        thread_id=session.thread_id,
        created=from_micros(session.created),
        parent_id=session.parent_id,
        parent_seq=session.parent_seq,
    )


def inbox_line(item: InboxItem) -> InboxLine:
    line = InboxLine(
        client_id=item.client_id,
        event_id=item.event_id,
        time=from_micros(item.time),
        seq=item.seq,
    )
    if item.seq is not None:
        return line
    return msgspec.structs.replace(
        line,
        thread_id=item.thread_id,
        version=item.version,
        payload=Raw(item.body.encode()),
        sender=decode_sender(item.sender),
        mac=item.mac,
    )
