"""Adopts what came from somewhere else: shows what it brings, then takes a session's conversation,
or everything in a store, as this installation's own.

Of a single session only the conversation is taken, by the rule of sessions that move: its
`session.received` ends its rules, hooks, mode, grants and approvals; waiting messages are dropped.
`log/provenance.py` decides what is foreign.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import msgspec
from msgspec import Struct

from mainspring.core import ids
from mainspring.core.envelope import event_types
from mainspring.core.errors import BlobNotFound, ForeignSession, InvalidInput, StoreCorrupt
from mainspring.core.events import PermissionUpdated, PolicyAdopted, SessionReceived
from mainspring.log.provenance import check_chain
from mainspring.log.records import RecordRow, Records, Replace
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem, SessionRow, Store, all_sessions
from mainspring.runtime.session.session_summary import workspace_of

_PAGE = 500  # events read at once
_ADOPTION = "tran"
"""Adoptions are numbered like transfers."""


class ForeignEffects(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a foreign session would cause if it continued as it is."""

    session_id: str
    is_intact: bool = True
    """Whether its hash chain is whole."""
    workspace: str | None = None
    mode: str | None = None
    hooks: tuple[str, ...] = ()
    """What its hooks run."""
    allow_rules: tuple[str, ...] = ()
    permission_changes: int = 0
    waiting: tuple[str, ...] = ()
    """Types of the events that wait in its inbox."""


async def foreign_sessions(log: SessionLog) -> list[SessionRow]:
    """Parents before their forks."""
    provenance = log.store.provenance
    rows = [row async for row in all_sessions(log.store) if not provenance.is_own(row)]
    return sorted(rows, key=lambda row: (row.parent_seq, row.created))


async def foreign_records(store: Store) -> list[RecordRow]:
    foreign: list[RecordRow] = []
    last: RecordRow | None = None
    while rows := await store.records.everything(after=last, limit=_PAGE):
        foreign += [row for row in rows if not store.provenance.is_own_record(row)]
        last = rows[-1]
    return foreign


async def require_own_records(store: Store) -> None:
    """Raises: ForeignRecord: a key, deployment or other record of the store is not our own."""
    last: RecordRow | None = None
    while rows := await store.records.everything(after=last, limit=_PAGE):
        for row in rows:
            store.provenance.own_record(row)
        last = rows[-1]


async def read_effects(log: SessionLog, session: SessionRow) -> ForeignEffects:
    effects = ForeignEffects(session_id=session.id)
    try:
        await check_chain(log.store, session)
        policies = await log.read(session.id, types=event_types(PolicyAdopted))
        changes = await log.read(session.id, types=event_types(PermissionUpdated))
        policy = await _policy(log, policies[-1].payload if policies else None)
        workspace = await workspace_of(log, session.id)
    except (ForeignSession, StoreCorrupt, InvalidInput):
        return msgspec.structs.replace(effects, is_intact=False)
    rules = _list(_object(policy.get("policy")).get("rules"))
    allowed = [_object(rule) for rule in rules if _object(rule).get("behavior") == "allow"]
    return msgspec.structs.replace(
        effects,
        workspace=workspace,
        mode=str(_object(policy.get("policy")).get("mode") or "default"),
        hooks=tuple(dict.fromkeys(_commands(policy.get("hooks")))),
        allow_rules=tuple(str(rule.get("text")) for rule in allowed),
        permission_changes=len(changes),
        waiting=tuple(item.type for item in await _foreign_items(log, session.id)),
    )


async def _policy(log: SessionLog, adopted: object) -> dict[str, object]:
    """The pinned policy as plain JSON: it is only shown."""
    if not isinstance(adopted, PolicyAdopted):
        return {}
    try:
        return _object(msgspec.json.decode(await log.blob(adopted.policy)))
    except (msgspec.MsgspecError, BlobNotFound, RecursionError):
        return {}


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _commands(hooks: object) -> list[str]:
    """All commands and addresses in the hooks, wherever they are."""
    found, pending = list[str](), [hooks]
    for value in pending:  # grows during the loop
        pending += _list(value)
        for name, item in _object(value).items():
            if name in ("command", "url", "prompt") and isinstance(item, str):
                found.append(item)
            pending.append(item)
    return found


async def _foreign_items(log: SessionLog, session_id: str) -> list[InboxItem]:
    items, after = list[InboxItem](), 0
    while page := await log.store.inbox(session_id, after=after):
        after = page[-1].position
        items += [
            item
            for item in page
            if item.seq is None and not log.store.provenance.is_own_item(session_id, item)
        ]
    return items


async def adopt_conversation(log: SessionLog, session_id: str, *, workspace: str) -> None:
    """Continue the conversation of a foreign session here, in this workspace.

    Raises:
        InvalidInput: its log was changed after it was written.
        LeaseHeld: another process holds it.
    """
    await _require_intact(log, await log.session(session_id))
    received = SessionReceived(transfer_id=ids.new_id(_ADOPTION), workspace=workspace)
    async with hold_session(log, session_id, is_receiving=True) as writer:
        await writer.append(received)
        dropped = [item._replace(mac=None) for item in await _foreign_items(log, session_id)]
        await log.store.adopt(session_id, writer.head, dropped)


async def move_session(log: SessionLog, session_id: str, *, workspace: str) -> None:
    """Continue one's own session in another folder, whose rules, hooks and mode then apply.

    Raises: LeaseHeld, ForeignSession.
    """
    received = SessionReceived(transfer_id=ids.new_id(_ADOPTION), workspace=workspace)
    async with hold_session(log, session_id) as writer:
        await writer.append(received)


async def _require_intact(log: SessionLog, session: SessionRow) -> None:
    try:
        await check_chain(log.store, session)
    except ForeignSession:
        problem = f"session {session.id} was changed after it was written, so nobody can adopt it"
        error = InvalidInput(problem)
        error.add_note(f"`mainspring log verify {session.id}` says what is wrong with it")
        raise error from None


async def adopt_everything(log: SessionLog) -> None:
    """Take all sessions, waiting messages and records of the store as they are.

    Raises:
        InvalidInput: a log was changed after it was written; what came before it is adopted.
        Conflict, StaleVersion: another process changes the store.
    """
    store = log.store
    for session in await foreign_sessions(log):
        await _require_intact(log, session)
        items = [
            item._replace(mac=store.provenance.item_mac(session.id, item))
            for item in await _foreign_items(log, session.id)
        ]
        await store.adopt(session.id, session.head, items)
    for row in await foreign_records(store):
        await _adopt_record(store.records, row)


async def _adopt_record(records: Records, row: RecordRow) -> None:
    content = (await records.whole(row.kind, row.id)).content
    await records.write(Replace(row=replace(row, mac=None), content=content))
