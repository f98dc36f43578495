"""A session's past requests, with the prefixes they need taken from beside the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from anyio import to_thread
from msgspec import Struct

from mainspring.core.envelope import Event
from mainspring.core.events import Usage
from mainspring.core.model import Request
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.harness.context.xray import (
    ModelCall,
    TokenBreakdown,
    decode_prefix,
    model_calls,
    prefix_digests,
    request_diff,
    token_breakdown,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow


class ShotView(Struct, frozen=True, kw_only=True):
    """A call of a model as it is told to others."""

    call: int
    """From 1, in the order of the main thread."""
    seq: int
    """Of the event with which it began."""
    model: str
    request_id: str | None
    parts: TokenBreakdown
    tokens_are_measured: bool
    usage: Usage | None
    cache_break: str | None
    messages: int
    kept_messages: int
    stop_reason: str | None
    request: Request | None


async def read_prefixes(log: SessionLog, events: Iterable[Event]) -> Mapping[str, PromptPrefix]:
    """Raises: BlobNotFound."""
    return {digest: decode_prefix(await log.blob(digest)) for digest in prefix_digests(events)}


async def read_shots(log: SessionLog, session: SessionRow) -> list[ModelCall]:
    """Every turn of the main thread, inherited ones included."""
    events = await log.read(session.id)
    prefixes = await read_prefixes(log, events)
    return await to_thread.run_sync(
        partial(model_calls, events, thread_id=session.thread_id, prefixes=prefixes)
    )


def previous_shot(taken: Sequence[ModelCall], shot: ModelCall) -> ModelCall | None:
    return taken[shot.number - 2] if shot.number > 1 else None


def shot_view(taken: Sequence[ModelCall], shot: ModelCall, *, with_request: bool) -> ShotView:
    """`taken`: all calls of its session."""
    found = token_breakdown(shot)
    return ShotView(
        call=shot.number,
        seq=shot.started.seq,
        model=shot.request.model,
        request_id=shot.start.request_id,
        parts=found,
        tokens_are_measured=found.is_measured,
        usage=None if shot.end is None else shot.end.model_usage,
        cache_break=shot.start.cache_break,
        messages=len(shot.request.messages),
        kept_messages=request_diff(shot, previous_shot(taken, shot)).kept_messages,
        stop_reason=None if shot.end is None else shot.end.stop_reason,
        request=shot.request if with_request else None,
    )
