"""From payloads to chained rows and back: encode, scrub, hash, upcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
import anyio.to_thread

from mainspring.core.clock import from_micros, to_micros
from mainspring.core.envelope import (
    FORMAT,
    AnyPayload,
    Event,
    decode_payload,
    encode_payload,
    payload_type,
)
from mainspring.core.errors import MalformedEvent
from mainspring.core.events import KnownPayload
from mainspring.core.sender import Sender, decode_sender, encode_sender
from mainspring.log.store import Head, Row
from mainspring.log.upcast import read_payload

Scrub: TypeAlias = Callable[[bytes], bytes]
"""Removes secrets from bytes before they are logged. Must leave JSON valid."""


def no_scrub(content: bytes) -> bytes:
    return content


_LARGE = 64 << 10
"""Bytes that are scrubbed in a thread: up to 0.2 s for a hostile MB, during which the event loop
would serve nobody."""
_SCRUBBERS = 2
"""Texts that are scrubbed at a time: more would only take the CPU from each other."""
_limiters: WeakKeyDictionary[object, anyio.CapacityLimiter] = WeakKeyDictionary()


async def scrub_aside(scrub: Scrub, content: bytes) -> bytes:
    """Scrub content of any size without keeping the event loop waiting."""
    if len(content) < _LARGE or scrub is no_scrub:
        return scrub(content)
    return await anyio.to_thread.run_sync(scrub, content, limiter=_limiter())


def _limiter() -> anyio.CapacityLimiter:
    """The limiter of this event loop."""
    loop = anyio.lowlevel.current_token()
    if loop not in _limiters:
        _limiters[loop] = anyio.CapacityLimiter(_SCRUBBERS)
    return _limiters[loop]


class EventDraft(NamedTuple):
    """A payload that is ready to be logged but has no position in the log yet."""

    id: str
    thread_id: str
    time: datetime
    payload: AnyPayload
    body: bytes
    version: int = FORMAT
    sender: Sender | None = None


def encode_scrubbed(payload: KnownPayload, scrub: Scrub) -> tuple[AnyPayload, bytes]:
    """The payload and its JSON, without secrets.

    Raises:
        MalformedEvent: it cannot be encoded, or scrubbing broke it. Do not store anything then.
    """
    body = encode_payload(payload)
    return _reread(payload, body, scrub(body))


async def encode_scrubbed_aside(payload: KnownPayload, scrub: Scrub) -> tuple[AnyPayload, bytes]:
    """As `encode_scrubbed`, for payloads of any size."""
    body = encode_payload(payload)
    return _reread(payload, body, await scrub_aside(scrub, body))


def _reread(payload: KnownPayload, body: bytes, clean: bytes) -> tuple[AnyPayload, bytes]:
    if clean == body:
        return payload, body
    reread = decode_payload(clean)
    if payload_type(reread) != payload_type(payload):
        raise MalformedEvent(f"scrubbing turned {payload_type(payload)} into {reread}")
    return reread, clean


def chain_events(
    session_id: str, head: Head, event_drafts: Sequence[EventDraft]
) -> tuple[list[Event], Head]:
    """Assign positions and hashes to drafts, continuing after `head`."""
    events: list[Event] = []
    for draft in event_drafts:
        event = Event(
            id=draft.id,
            session_id=session_id,
            seq=head.seq + 1,
            thread_id=draft.thread_id,
            time=draft.time,
            payload=draft.payload,
            body=draft.body,
            version=draft.version,
            prev=head.hash,
            sender=draft.sender,
        )
        events.append(event)
        head = Head(event.seq, event.digest())
    return events, head


def to_row(event: Event) -> Row:
    return Row(
        event.seq,
        event.id,
        event.thread_id,
        to_micros(event.time),
        event.version,
        event.type,
        event.body.decode(),
        event.prev,
        encode_sender(event.sender),
    )


def to_event(session_id: str, row: Row) -> Event:
    """Raises: MalformedEvent: the stored row is not a valid event."""
    try:
        time = from_micros(row.time)
    except OverflowError as error:
        raise MalformedEvent(f"event {row.seq}: {row.time} is not a valid time") from error
    return Event(
        id=row.id,
        session_id=session_id,
        seq=row.seq,
        thread_id=row.thread_id,
        time=time,
        payload=read_payload(row.type, row.body, row.version),
        body=row.body.encode(),
        version=row.version,
        prev=row.prev,
        sender=decode_sender(row.sender),
    )
