"""Keeps old events readable: each change of a released format adds one function here.

To change the format of an event: raise `envelope.FORMAT`, add the function that turns the old
JSON into the new, and golden files of the new version. Stored events are never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from mainspring.core.envelope import (
    FORMAT,
    AnyPayload,
    Event,
    EventLine,
    UnknownPayload,
    decode_payload,
    type_of,
)
from mainspring.core.errors import MalformedEvent

Upcaster: TypeAlias = Callable[[dict[str, object]], dict[str, object]]

UPCASTERS: Mapping[tuple[str, int], Upcaster] = {}
"""(type, stored version) -> function that converts its JSON to the next version. A missing entry
means that nothing changed."""


def read_payload(
    kind: str,
    body: str | bytes,
    version: int,
    *,
    upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
    current: int = FORMAT,
) -> AnyPayload:
    """Read a stored payload of any version.

    Raises:
        MalformedEvent: it does not match the format of its version.
    """
    if version == current:
        return decode_payload(body)
    if version > current:
        try:
            return decode_payload(body)
        except MalformedEvent:  # a newer Mainspring gave a known type a new shape
            return UnknownPayload(type=kind)
    type_of(body)  # raises if it is not an event
    fields: dict[str, object] = msgspec.json.decode(body, type=dict[str, object])
    for step in range(version, current):
        if upcaster := upcasters.get((str(fields["type"]), step)):
            fields = upcaster(fields)
    return decode_payload(msgspec.json.encode(fields))


def read_line(line: EventLine) -> Event:
    """An event from its line of JSON, with the exact bytes of its body."""
    body = bytes(line.payload)
    try:
        prev = bytes.fromhex(line.prev)
        body.decode()  # the parser does not check parts that it skips
    except ValueError as error:
        raise MalformedEvent(f"event {line.seq}: {error}") from error
    if line.time.tzinfo is None:
        raise MalformedEvent(f"event {line.seq}: its time has no time zone")
    if not 1 <= line.version < 2**31:
        raise MalformedEvent(f"event {line.seq}: invalid version {line.version}")
    return Event(
        id=line.id,
        session_id=line.session_id,
        seq=line.seq,
        thread_id=line.thread_id,
        time=line.time,
        payload=read_payload(type_of(body), body, line.version),
        body=body,
        version=line.version,
        prev=prev,
        sender=line.sender,
    )
