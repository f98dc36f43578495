"""The past model requests of a session, rebuilt from its log and its stored prompt prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from anyio import to_thread
from msgspec import Struct

from mainspring.core.envelope import Event, event_types
from mainspring.core.events import AgentCustomToolUse, AgentMcpToolUse, AgentToolUse, Usage
from mainspring.core.model import Request
from mainspring.harness.context.provenance import RequestPart, ToolPart, request_parts, tool_parts
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.harness.context.xray import (
    ModelCall,
    ModelCallFold,
    TokenBreakdown,
    decode_prefix,
    model_calls,
    prefix_digests,
    request_diff,
    token_breakdown,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow

COUNTED_SESSIONS = 20  # the newest sessions, whose calls of each tool are counted
_EVENTS_AT_ONCE = 4000
"""Events of one part of a log: a few megabytes."""
_CALLS = (AgentToolUse, AgentMcpToolUse, AgentCustomToolUse)
_CALL_TYPES = event_types(*_CALLS)


class ShotView(Struct, frozen=True, kw_only=True):
    """A model call, as the API and the CLI show it."""

    call: int
    """Counted from 1, in the order of the main thread."""
    seq: int
    """The number of the event that started it."""
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
    sources: tuple[RequestPart, ...] = ()
    """The source of each part and why it is there; only for a single call."""
    tools: tuple[ToolPart, ...] = ()


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


async def read_shots_between(
    log: SessionLog, session: SessionRow, first: int, last: int
) -> tuple[list[ModelCall], bool]:
    """The turns with these numbers, and whether there are more. It reads the log in parts, and
    holds one part and these turns in memory, however long the log is."""
    fold = ModelCallFold(session.thread_id, first=first, last=last)
    prefixes: dict[str, PromptPrefix] = {}
    after = 0
    while not fold.is_complete:
        events = await log.read(session.id, after=after, limit=_EVENTS_AT_ONCE)
        if not events:
            break
        after = events[-1].seq
        digests = prefix_digests(events) - prefixes.keys()
        prefixes |= {digest: decode_prefix(await log.blob(digest)) for digest in digests}
        await to_thread.run_sync(partial(_apply, fold, events, prefixes))
    return fold.calls, fold.is_complete


def _apply(
    fold: ModelCallFold, events: Sequence[Event], prefixes: Mapping[str, PromptPrefix]
) -> None:
    for event in events:
        fold.apply(event, prefixes)


async def explain_shot(
    log: SessionLog, session: SessionRow, call: ModelCall
) -> tuple[tuple[RequestPart, ...], tuple[ToolPart, ...]]:
    """The source of each part of a request; its tools with their calls in the last sessions."""
    parts = request_parts(call, await log.read(session.id))
    return tuple(parts), tuple(tool_parts(call, await _count_calls(log)))


async def _count_calls(log: SessionLog) -> Counter[str]:
    calls: Counter[str] = Counter()
    for session in await log.store.sessions(limit=COUNTED_SESSIONS):
        events = await log.read(session.id, types=_CALL_TYPES)
        payloads = (event.payload for event in events if event.seq > session.parent_seq)
        calls.update(call.name for call in payloads if isinstance(call, _CALLS))
    return calls


def previous_shot(calls: Sequence[ModelCall], call: ModelCall) -> ModelCall | None:
    return calls[call.number - 2] if call.number > 1 else None


def shot_view(call: ModelCall, previous: ModelCall | None, *, with_request: bool) -> ShotView:
    """`previous`: the call before it; `None` for the first."""
    parts = token_breakdown(call)
    return ShotView(
        call=call.number,
        seq=call.started.seq,
        model=call.request.model,
        request_id=call.start.request_id,
        parts=parts,
        tokens_are_measured=parts.is_measured,
        usage=None if call.end is None else call.end.model_usage,
        cache_break=call.start.cache_break,
        messages=len(call.request.messages),
        kept_messages=request_diff(call, previous).kept_messages,
        stop_reason=None if call.end is None else call.end.stop_reason,
        request=call.request if with_request else None,
    )
