"""The event: an envelope around a payload, its exact JSON, and the hash that chains it."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TypeAlias, get_args

import msgspec
from msgspec import Raw, Struct

from mainspring.core import content, events
from mainspring.core.clock import to_micros
from mainspring.core.errors import MalformedEvent
from mainspring.core.events import KnownPayload
from mainspring.core.sender import Sender

FORMAT = 1
"""Version of the event format that this release writes; `log/upcast.py` reads older ones."""

GENESIS = hashlib.sha256(b"mainspring").digest()
"""The `prev` hash of the first event of every log."""


class UnknownPayload(Struct, frozen=True, kw_only=True):
    """An event of a newer Mainspring: stored and exported unchanged, never interpreted."""

    type: str


AnyPayload: TypeAlias = KnownPayload | UnknownPayload

PAYLOAD_TYPES: dict[str, type[events.Payload]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(KnownPayload)
}
_TAGS: dict[type, str] = {kind: tag for tag, kind in PAYLOAD_TYPES.items()}
CLIENT_TYPES = frozenset(_TAGS[kind] for kind in get_args(events.ClientPayload))
"""Types of events that clients may send."""

_PAYLOADS: msgspec.json.Decoder[KnownPayload] = msgspec.json.Decoder(KnownPayload)
_ENCODER = msgspec.json.Encoder()


_UNKNOWN = msgspec.json.Decoder(UnknownPayload)


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """One immutable entry of a session's log."""

    id: str
    session_id: str
    seq: int
    thread_id: str
    time: datetime
    payload: AnyPayload
    body: bytes
    """The payload's JSON exactly as stored, hashed and exported."""
    version: int
    prev: bytes
    """Hash of the event before it."""
    sender: Sender | None = None
    """Who sent it; `None` for events of the session itself, and in logs from before senders were
    recorded."""

    @property
    def type(self) -> str:
        return payload_type(self.payload)

    def digest(self) -> bytes:
        """Hash of this event, which is `prev` of the next. For a redacted event, its original
        hash; `log/verify.py` checks that the log records the redaction."""
        if (original := redacted_digest(self.body)) is not None:
            return original
        sender = () if self.sender is None else (self.sender,)
        micros = to_micros(self.time)
        fields = (self.version, self.session_id, self.seq, self.id, self.thread_id, micros, *sender)
        return chained_digest(self.prev, fields, self.body)


def chained_digest(prev: bytes, fields: tuple[object, ...], body: bytes) -> bytes:
    """The hash of an event from the parts that it covers."""
    # as JSON, so that fields cannot run into each other
    return hashlib.sha256(_ENCODER.encode((prev, *fields)) + body).digest()


_REDACTED = b',"$redacted":"'
_REDACTED_END = len(_REDACTED) + 64 + len(b'"}')


def redacted_digest(body: bytes) -> bytes | None:
    """The original hash of a redacted event; `None` if it is not redacted."""
    end = body[-_REDACTED_END:]
    if not end.startswith(_REDACTED) or not end.endswith(b'"}'):
        return None
    try:
        return bytes.fromhex(end[len(_REDACTED) : -2].decode())
    except ValueError:
        return None


def redacted_body(body: bytes, digest: bytes) -> bytes:
    """JSON of a redacted payload that carries the original hash."""
    return body[:-1] + _REDACTED + digest.hex().encode() + b'"}'


class EventLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event as a line of JSON, in the format of all exports and `--json`."""

    session_id: str
    seq: int
    id: str
    thread_id: str
    time: datetime
    version: int
    prev: str
    payload: Raw
    sender: Sender | None = None


def payload_type(payload: AnyPayload) -> str:
    return payload.type if isinstance(payload, UnknownPayload) else _TAGS[type(payload)]


def event_types(*payloads: type[KnownPayload]) -> frozenset[str]:
    """The type names of these payloads in the log."""
    return frozenset(_TAGS[payload] for payload in payloads)


def encode_payload(payload: KnownPayload) -> bytes:
    try:
        return _ENCODER.encode(payload)
    except (TypeError, ValueError, OverflowError) as error:  # lone surrogates, foreign objects
        raise MalformedEvent(f"{payload_type(payload)} cannot be written: {error}") from error


def decode_payload(body: bytes | str) -> AnyPayload:
    """Read a payload of the current format; an unknown type becomes `UnknownPayload`.

    Raises:
        MalformedEvent: it is not JSON, has no `type`, or does not match its type.
    """
    try:
        return _PAYLOADS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        kind = type_of(body)
        if kind in PAYLOAD_TYPES:
            raise MalformedEvent(f"{kind}: {error}") from error
        return UnknownPayload(type=kind)


def type_of(body: bytes | str) -> str:
    try:
        return _UNKNOWN.decode(body).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"not an event: {error}") from error


def encode_line(event: Event) -> bytes:
    return _ENCODER.encode(
        EventLine(
            session_id=event.session_id,
            seq=event.seq,
            id=event.id,
            thread_id=event.thread_id,
            time=event.time,
            version=event.version,
            prev=event.prev.hex(),
            payload=Raw(event.body),
            sender=event.sender,
        )
    )


def message_text(payload: AnyPayload) -> str:
    """The text of a message by a person or the agent; empty for all other events."""
    match payload:
        case (
            events.UserMessage(content=blocks)
            | events.SystemMessage(content=blocks)
            | events.AgentMessage(content=blocks)
            | events.ThreadMessageSent(content=blocks)
            | events.ThreadMessageReceived(content=blocks)
            | events.AgentToolResult(content=blocks)
            | events.AgentMcpToolResult(content=blocks)
            | events.UserCustomToolResult(content=blocks)
            | events.UserToolResult(content=blocks)
        ):
            return content.plain_text(blocks)
        case _:
            return ""
