"""A session in a few facts, for lists and headings: title, status, permission mode, pending
calls, workspace, cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from mainspring.core import events
from mainspring.core.clock import from_micros
from mainspring.core.envelope import Event, event_types
from mainspring.core.events import Usage
from mainspring.core.sender import UNKNOWN_ORIGIN, Origin
from mainspring.harness.state.open_call import OpenCall, asking_call
from mainspring.harness.state.projection_cache import read_projection
from mainspring.harness.state.session_projection import SessionProjection, ThreadProjection
from mainspring.log.session_log import SessionLog
from mainspring.log.session_status import Status
from mainspring.log.store import SessionRow, all_sessions
from mainspring.runtime.approvals import Answer, AnswerEvent, answer_call
from mainspring.runtime.memory.memory_mode import MEMORY_KEY, MemoryMode, read_memory_mode
from mainspring.runtime.session.activity_line import read_lines
from mainspring.runtime.skills.substitution import typed_text

_CREATED = event_types(events.SessionCreated)
_MAX_OPENING_EVENTS = 20  # among which the first message is
_WORKSPACE_EVENT_TYPES = event_types(events.SandboxOpened, events.SessionReceived)
_FOOTPRINT_EVENT_TYPES = event_types(
    events.SandboxOpened, events.WorkspaceSnapshotted, events.WorkspaceRestored
)


class SessionSummary(Struct, frozen=True, kw_only=True):
    id: str
    title: str | None
    agent: str | None
    folder: str | None
    """The agent's folder, if the session was run from another one."""
    memory: MemoryMode
    model: str | None
    """The last model, apart from models that a skill set for its run."""
    status: Status
    activity: str
    """What it does now, or what it waits for."""
    reason: str | None
    """Why the last run stopped."""
    outcome: str | None
    """The last verdict on its outcome, if it was graded."""
    turns: int
    usage: Usage
    cost_usd: Decimal
    created: datetime
    updated: datetime
    holder: str | None
    parent: str | None
    origin: Origin


async def summarize_session(log: SessionLog, session: SessionRow) -> SessionSummary:
    """A fork includes the turns and the cost that it inherits: they count against its budget."""
    return await summary_of(log, session, await read_projection(log, session))


async def summary_of(
    log: SessionLog, session: SessionRow, projection: SessionProjection
) -> SessionSummary:
    created, main = projection.created or events.SessionCreated(), projection.main
    [line] = await read_lines(log, [session])
    return SessionSummary(
        id=session.id,
        title=projection.title or await _first_message(log, session),
        agent=created.agent_name,
        folder=(created.metadata or {}).get("folder"),
        memory=read_memory_mode(projection.metadata.get(MEMORY_KEY)),
        model=projection.model,
        status=line.status,
        activity=line.text,
        reason=None if main is None else main.reason,
        outcome=projection.verdict,
        turns=0 if main is None else main.turns,
        usage=projection.usage,
        cost_usd=projection.spent.cost_usd,
        created=from_micros(session.created),
        updated=from_micros(session.updated),
        holder=session.owner,
        parent=session.parent_id,
        origin=created.origin or UNKNOWN_ORIGIN,
    )


async def origin_of(log: SessionLog, session: SessionRow) -> Origin:
    """The origin of a session; for a fork, that of its parent."""
    [first] = await log.read(session.id, types=_CREATED, limit=1)
    origin = first.payload.origin if isinstance(first.payload, events.SessionCreated) else None
    return origin or UNKNOWN_ORIGIN


class ThreadPendingCall(Struct, frozen=True):
    """A call that a person or a client must answer before its thread can continue."""

    call: OpenCall
    thread_id: str
    path: tuple[str, ...]
    """Subagent names from the main thread down to the one that asks; empty for the main thread."""


async def read_pending_calls(log: SessionLog, session: SessionRow) -> list[ThreadPendingCall]:
    return pending_calls(await read_projection(log, session))


def pending_calls(projection: SessionProjection) -> list[ThreadPendingCall]:
    """Pending calls of all threads, in the order in which the threads were created; then the
    questions of parts that are not calls, such as a workflow."""
    calls = [
        ThreadPendingCall(call, thread.id, _path(projection, thread))
        for thread in projection.threads.values()
        for call in thread.pending_calls
        if call.name
    ]
    questions = [
        ThreadPendingCall(asking_call(item), item.thread_id, ())
        for item in projection.open_approvals
    ]
    return calls + questions


def _path(projection: SessionProjection, thread: ThreadProjection) -> tuple[str, ...]:
    if thread.created is None:
        return ()
    parent = projection.threads.get(thread.parent_id or "")
    return (*(() if parent is None else _path(projection, parent)), thread.agent_name or thread.id)


async def read_open_calls(log: SessionLog, session: SessionRow) -> list[OpenCall]:
    return [pending.call for pending in await read_pending_calls(log, session)]


async def answer_event(
    log: SessionLog, session_id: str, call_id: str, answer: Answer
) -> AnswerEvent:
    """The event that answers a waiting call.

    Raises: InvalidInput.
    """
    waiting = await read_open_calls(log, await log.session(session_id))
    call = next((call for call in waiting if call.id == call_id), None)
    return answer_call(call or OpenCall(id=call_id, name="", input={}), answer)


async def workspace_of(log: SessionLog, session_id: str) -> str | None:
    """Where the session works; `None` if it has no sandbox yet and was not moved here."""
    openings = await log.read(session_id, types=_WORKSPACE_EVENT_TYPES)
    match openings[-1].payload if openings else None:
        case events.SandboxOpened(workspace=path) | events.SessionReceived(workspace=path):
            return path
        case _:
            return None


async def _first_message(log: SessionLog, session: SessionRow) -> str | None:
    """The first message of a user; in a fork, the first of its own."""
    opening: list[Event] = await log.read(
        session.id, after=session.parent_seq, limit=_MAX_OPENING_EVENTS
    )
    for event in opening:
        if isinstance(event.payload, events.UserMessage):
            return typed_text(event.payload.content) or None
    return None


class SummaryFact(Struct, frozen=True):
    name: str
    value: str


def summary_facts(summary: SessionSummary) -> list[SummaryFact]:
    usage = summary.usage
    tokens = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    facts = (
        ("Session", summary.id),
        ("Agent", summary.agent),
        ("Model", summary.model),
        ("Created", f"{summary.created:%Y-%m-%d %H:%M} UTC"),
        ("Last change", f"{summary.updated:%Y-%m-%d %H:%M} UTC"),
        ("Status", summary.reason or summary.status),
        ("Turns", str(summary.turns)),
        ("Tokens", f"{tokens:,} in, {usage.output_tokens:,} out"),
        ("Cost", f"${summary.cost_usd:.4f}"),
    )
    return [SummaryFact(name, value) for name, value in facts if value]


class SessionFootprint(Struct, frozen=True, kw_only=True):
    """Its workspaces and its snapshots of them; read it before the session is deleted."""

    session_id: str
    workspaces: frozenset[str]
    snapshots: frozenset[str]


async def read_footprint(log: SessionLog, session_id: str) -> SessionFootprint:
    payloads = [event.payload for event in await log.read(session_id, types=_FOOTPRINT_EVENT_TYPES)]
    kinds = (events.WorkspaceSnapshotted, events.WorkspaceRestored)
    return SessionFootprint(
        session_id=session_id,
        workspaces=frozenset(
            payload.workspace for payload in payloads if isinstance(payload, events.SandboxOpened)
        ),
        snapshots=frozenset(payload.snapshot for payload in payloads if isinstance(payload, kinds)),
    )


async def unused_snapshots(log: SessionLog, deleted: Iterable[SessionFootprint]) -> frozenset[str]:
    """Snapshots of deleted sessions that no other session can return to."""
    snapshots = frozenset[str]().union(*(item.snapshots for item in deleted))
    if snapshots:
        async for session in all_sessions(log.store):
            snapshots -= (await read_footprint(log, session.id)).snapshots
    return snapshots
