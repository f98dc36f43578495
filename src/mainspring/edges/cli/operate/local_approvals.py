"""Calls that wait for approval in the sessions of `run` and `chat`, which belong to no tenant."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.sender import local_user
from mainspring.edges.cli.render.event_summary import truncate
from mainspring.edges.cli.render.printing import StyledText
from mainspring.edges.cli.render.renderer import key_argument
from mainspring.edges.cli.run.approval_prompt import caller_path
from mainspring.harness.state.open_call import OpenCall
from mainspring.log.session_log import SessionLog
from mainspring.log.upcast import read_payload
from mainspring.runtime.approvals import Answer, submit_answer
from mainspring.runtime.session.recent_sessions import PEOPLES_ORIGINS, sessions_of_origins
from mainspring.runtime.session.session_summary import ThreadPendingCall, read_pending_calls

_MIN_ID_CHARS = 6
"""Fewer characters of an id could name another call tomorrow."""


class LocalApproval(Struct, frozen=True, kw_only=True, tag_field="type", tag="local_approval"):
    id: str
    session_id: str
    name: str
    """The tool, after the subagents that called it."""
    summary: str
    reason: str | None


async def local_approvals(log: SessionLog) -> list[LocalApproval]:
    """Those of own sessions: a foreign one is never continued."""
    approvals: list[LocalApproval] = []
    async for row in sessions_of_origins(log, PEOPLES_ORIGINS, any_tenant=False):
        activity = await log.activity(row)
        asked = (call for thread in activity.threads.values() for call in thread.calls.values())
        if not any(call.state in ("asked", "client") for call in asked) or not log.is_own(row):
            continue
        answered = await _answered(log, row.id)
        for pending in await read_pending_calls(log, row):
            call = pending.call
            if call.id in answered:
                continue
            text = call.preview or key_argument(call.input)
            approvals.append(
                LocalApproval(
                    id=call.id,
                    session_id=row.id,
                    name=caller_path(pending),
                    summary=truncate(text.strip()),
                    reason=call.reason,
                )
            )
    return approvals


async def _answered(log: SessionLog, session_id: str) -> set[str]:
    """The calls whose answers no process has read yet."""
    payloads = [
        read_payload(item.type, item.body, item.version)
        for item in await log.store.pending(session_id)
    ]
    ids = (getattr(payload, "tool_use_id", None) for payload in payloads)
    return {id_ for id_ in ids if id_ is not None}


def approval_cells(approval: LocalApproval) -> list[StyledText]:
    """The cells of a row of `approvals ls`."""
    session = f"session {approval.session_id[-8:]}"
    return [(approval.id, ""), (session, ""), (approval.name, "bold"), (approval.summary, ""),
            ("", ""), ("", ""), ("", "")]  # fmt: skip


async def answer_local(
    settings: Settings, log: SessionLog, ids: Sequence[str], answer: Answer
) -> list[LocalApproval]:
    """Answer the calls with these ids, or parts of ids, if all of them exist.

    Raises: NotFound; InvalidInput: an id is ambiguous.
    """
    waiting = await local_approvals(log)
    approvals = [_find(waiting, id_or_part) for id_or_part in ids]
    for approval in approvals:
        row = await log.session(approval.session_id)
        call = _open_call(await read_pending_calls(log, row), approval.id)
        await submit_answer(log, row.id, call, answer, sender=local_user(settings.user))
    return approvals


def _find(waiting: Sequence[LocalApproval], id_or_part: str) -> LocalApproval:
    matches = [item for item in waiting if item.id == id_or_part]
    if not matches and len(id_or_part) >= _MIN_ID_CHARS:
        matches = [item for item in waiting if id_or_part in item.id]
    if len(matches) > 1:
        raise InvalidInput(f"{id_or_part} could be any of {len(matches)} calls")
    if not matches:
        raise NotFound("approval", id_or_part)
    return matches[0]


def _open_call(pending: Sequence[ThreadPendingCall], call_id: str) -> OpenCall:
    """Raises: NotFound: it was answered meanwhile."""
    for item in pending:
        if item.call.id == call_id:
            return item.call
    raise NotFound("approval", call_id)
