"""A session's past requests, with the prefixes they need taken from beside the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mainspring.core.envelope import Event
from mainspring.harness.context.view import Prefix
from mainspring.harness.context.xray import Shot, decode_prefix, prefix_digests, shots
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow


async def read_prefixes(log: SessionLog, events: Iterable[Event]) -> Mapping[str, Prefix]:
    """Raises: BlobNotFound."""
    return {digest: decode_prefix(await log.blob(digest)) for digest in prefix_digests(events)}


async def read_shots(log: SessionLog, session: SessionRow) -> list[Shot]:
    """Every turn of the main thread, inherited ones included."""
    events = await log.read(session.id)
    prefixes = await read_prefixes(log, events)
    return shots(events, thread_id=session.thread_id, prefixes=prefixes)
