"""What sessions do now, or why they wait: one line each, cheap for hundreds of sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core import events
from mainspring.core.clock import from_micros
from mainspring.core.envelope import payload_type
from mainspring.log.session_activity import OpenStep, SessionActivity, ThreadActivity
from mainspring.log.session_lease import is_dead
from mainspring.log.session_log import SessionLog
from mainspring.log.session_status import SessionState, Status, state_of, status_names
from mainspring.log.store import SessionRow

WaitsFor: TypeAlias = Literal["person", "client", "process", "message", "provider", "store"]
"""`person`: an answer; `client`: the result of a tool of its client; `process`: one that runs it;
`message`: the next one, because it is done; `provider`: it tries again; `store`: it was moved."""

_IDLE_TYPES = {payload_type(entry) for entry in (events.UserInterrupt(), events.SessionUpdated())}
"""Inbox items that do not start a run."""
_MAX_NAMED = 3
"""Calls that a line names; it counts the others."""
_STEP_TEXTS = {
    "model": "asks {}",
    "retry": "tries again: {}",
    "summary": "summarizes the conversation",
    "judgement": "judges a call",
    "recall": "looks for memories",
    "search": "searches the web",
    "extract": "notes what to remember",
    "grade": "grades the outcome",
}


class ActivityLine(Struct, frozen=True, kw_only=True):
    session_id: str
    status: Status
    text: str
    """What it does, or what it waits for."""
    since: datetime
    waits_for: WaitsFor | None = None
    """`None`: it works."""


async def read_lines(log: SessionLog, sessions: Sequence[SessionRow]) -> list[ActivityLine]:
    """One line for each session, in the same order. One statement reads all inboxes."""
    pending: defaultdict[str, set[str]] = defaultdict(set)
    for session_id, type_ in await log.store.pending_types([row.id for row in sessions]):
        pending[session_id].add(type_)
    return [
        activity_line(row, await log.activity(row), has_work=has_work(pending[row.id]))
        for row in sessions
    ]


def has_work(pending_types: set[str]) -> bool:
    """Whether an inbox item starts a run; an interrupt of an idle session does not."""
    return not pending_types <= _IDLE_TYPES


def status_of(row: SessionRow, activity: SessionActivity, *, has_work: bool) -> Status:
    return status_names(_state(row, activity, has_work=has_work)).command_line


def _state(row: SessionRow, activity: SessionActivity, *, has_work: bool) -> SessionState:
    main = activity.main_thread
    if activity.is_moved:
        return "moved"
    if row.owner is not None and not is_dead(row.owner):
        return "running"
    if main.status == "running" or has_work:
        return "unfinished"
    return state_of("idle", main.reason, has_begun=main.reason is not None)


def activity_line(row: SessionRow, activity: SessionActivity, *, has_work: bool) -> ActivityLine:
    status = status_of(row, activity, has_work=has_work)
    text, waits_for = _text(status, activity)
    asked = [step.since for step in _open_steps(activity) if step.state in ("asked", "client")]
    since = min(asked) if asked and waits_for in ("person", "client") else _since(activity)
    return ActivityLine(
        session_id=row.id,
        status=status,
        text=text,
        since=from_micros(since or row.created),
        waits_for=waits_for,
    )


def work_text(activity: SessionActivity) -> str:
    """What a session that runs in this process does."""
    return _work(activity, [step for step in _open_steps(activity) if step.state == "asked"])[0]


def _text(status: Status, activity: SessionActivity) -> tuple[str, WaitsFor | None]:
    steps = _open_steps(activity)
    asked = [step for step in steps if step.state == "asked"]
    match status:
        case "moved":
            return "continues in another store", "store"
        case "unfinished":
            return "has work, and no process runs it", "process"
        case "running" if activity.is_running:
            return _work(activity, asked)
        case "running":
            return "starts", None
        case _ if asked:
            return f"waits for a person: {_names(asked)}", "person"
        case _ if for_client := [step for step in steps if step.state == "client"]:
            return f"waits for the client: {_names(for_client)}", "client"
        case "new":
            return "waits for its first message", "message"
        case _:
            return _idle_text(activity.main_thread)


def _idle_text(main: ThreadActivity) -> tuple[str, WaitsFor | None]:
    if main.status == "rescheduling":
        return "continues later", "process"
    if main.status == "terminated":
        return "ended", None
    reason = "done" if main.reason == "completed" else (main.reason or "").replace("_", " ")
    return f"{reason}: {main.what}" if main.what else reason, "message"


def _work(activity: SessionActivity, asked: Sequence[OpenStep]) -> tuple[str, WaitsFor | None]:
    """What the threads of a running session do."""
    threads = [thread for thread in activity.threads.values() if thread.status == "running"]
    leaves = [thread for thread in threads if thread.name is not None] or threads
    texts = [_thread_text(thread) for thread in leaves[:_MAX_NAMED]]
    if len(leaves) > _MAX_NAMED:
        texts.append(f"{len(leaves) - _MAX_NAMED} more")
    if asked:
        texts.append(f"waits for a person: {_names(asked)}")
    is_retrying = all(thread.doing == "retry" for thread in leaves)
    return "; ".join(texts), "provider" if is_retrying else None


def _thread_text(thread: ThreadActivity) -> str:
    name = f"{thread.name}: " if thread.name else ""
    steps = [step for step in thread.calls.values() if step.state == "running"]
    if steps:
        return f"{name}{_names(steps)}"
    if thread.doing is None:
        return f"{name}works"
    text = _STEP_TEXTS.get(thread.doing, thread.doing.replace("_", " "))
    return f"{name}{text.format(thread.what or 'the model')}"


def _names(steps: Sequence[OpenStep]) -> str:
    texts = [f"{step.name}: {step.text}" if step.text else step.name for step in steps]
    more = len(texts) - _MAX_NAMED
    return ", ".join([*texts[:_MAX_NAMED], *([f"{more} more"] if more > 0 else [])])


def _open_steps(activity: SessionActivity) -> list[OpenStep]:
    calls = [call for thread in activity.threads.values() for call in thread.calls.values()]
    return [*calls, *activity.questions.values()]


def _since(activity: SessionActivity) -> int:
    """When what it does now began: the newest step of its running threads."""
    running = [thread for thread in activity.threads.values() if thread.status == "running"]
    starts = [
        *(thread.since for thread in running),
        *(call.since for thread in running for call in thread.calls.values()),
    ]
    return max(starts, default=activity.main_thread.since)
