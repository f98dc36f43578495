"""The records of a service over the sessions of one person's machine. Those of sessions are
computed from their logs, which `run` and `chat` write; all others are stored apart from them, for
as long as the service runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from mainspring.core import events
from mainspring.core.clock import from_micros
from mainspring.core.errors import NotFound, SessionNotFound
from mainspring.core.sender import UNKNOWN_ORIGIN
from mainspring.log.lru_cache import LruCache
from mainspring.log.records import (
    SESSION_KIND,
    STATUS_FILTER,
    FilterValues,
    RecordChange,
    RecordQuery,
    RecordRow,
    Records,
    RecordWithContent,
    Remove,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.session_status import WAKING_TYPES
from mainspring.log.store import Head, SessionRow
from mainspring.runtime.workflows.engine import RUN_AGENT
from mainspring.service.access.principal import CLI_PRINCIPAL
from mainspring.service.resources.agents import ModelConfig, ServiceAccount
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.sessions.session_agent import SessionAgent
from mainspring.service.sessions.session_record import SessionCreator, SessionRecord, index_columns
from mainspring.service.sessions.workflow_run_record import RUN_KIND, RunRecord

LOCAL_TENANT = "(this machine)"
"""No tenant of a service has this id."""
_CREATED = ("session.created", "session.forked", "session.updated")
_CACHED = 10_000  # sessions
_SCANNED_AT_ONCE = 200
"""Sessions that are read together while a filtered list looks for its own."""
_DECODER = msgspec.json.Decoder(SessionRecord)


@dataclass(slots=True)
class LocalRecords:
    """Implements `Records`."""

    log: SessionLog
    others: Records
    _rows: LruCache[str, tuple[int, RecordRow]] = field(default_factory=lambda: LruCache(_CACHED))
    """By session, with the end of the log that it was computed from."""

    async def get(self, kind: str, id_: str) -> RecordRow:
        if kind not in (SESSION_KIND, RUN_KIND):
            return await self.others.get(kind, id_)
        try:
            session = await self._session(await self.log.session(id_))
        except SessionNotFound:
            raise NotFound(kind, id_) from None
        row = session if kind == SESSION_KIND else _run(session)
        if row is None:
            raise NotFound(kind, id_)
        return row

    async def list(self, query: RecordQuery) -> list[RecordRow]:
        if query.kind not in (SESSION_KIND, RUN_KIND):
            return await self.others.list(query)
        found: list[RecordRow] = []
        before = None if query.after is None else _position(query.after)
        size = max(query.limit, _SCANNED_AT_ONCE) if query.filters else query.limit
        while page := await self.log.store.sessions(before=before, limit=size):
            before = page[-1]
            statuses = await self._statuses(page) if query.filters else {}
            for row in page:
                session = await self._session(row)
                record = session if query.kind == SESSION_KIND else _run(session)
                if record is not None and _matches(query, record, statuses.get(row.id, "")):
                    found.append(record)
            if len(found) >= query.limit or len(page) < size:
                break
        return found[: query.limit]

    async def _statuses(self, rows: Sequence[SessionRow]) -> dict[str, str]:
        """As lists show them: a session that input waits for is about to run."""
        waiting = await self.log.store.first_pending([row.id for row in rows], WAKING_TYPES)
        statuses: dict[str, str] = {}
        for row in rows:
            status = row.status or (await self.log.activity(row)).status
            is_waking = status == "idle" and row.id in waiting
            statuses[row.id] = "running" if is_waking else status
        return statuses

    async def without_filters(self, kind: str, *, after: str, limit: int) -> list[RecordRow]:
        return []  # filters of sessions are computed as well

    async def add_filters(self, *changes: tuple[RecordRow, FilterValues]) -> None:
        await self.others.add_filters(*changes)

    async def _session(self, row: SessionRow) -> RecordRow:
        cached = self._rows.get(row.id)
        if cached is not None and cached[0] == row.head.seq:
            return cached[1]
        record = await self._record(row)
        stored = RecordRow(
            tenant=LOCAL_TENANT,
            kind=SESSION_KIND,
            id=row.id,
            created=row.created,
            updated=row.created,
            body=msgspec.json.encode(record),
            label=record.agent.id,
        )
        self._rows.put(row.id, (row.head.seq, stored))
        return stored

    async def _record(self, row: SessionRow) -> SessionRecord:
        name, title, version, origin = "agent", None, None, UNKNOWN_ORIGIN
        run_id: str | None = None
        for event in await self.log.read(row.id, types=_CREATED):
            match event.payload:
                case events.SessionCreated() as created:
                    name, title = created.agent_name or name, created.title
                    version, origin = created.agent_version, created.origin or origin
                    run_id = (created.metadata or {}).get("workflow_run")
                case events.SessionForked(title=str(renamed)):
                    title = renamed
                case events.SessionUpdated(title=str(renamed)):
                    title = renamed
                case _:
                    pass
        created_at = from_micros(row.created)
        return SessionRecord(
            id=row.id,
            agent=SessionAgent(
                id=name,
                name=name,
                version=int(version) if version is not None and version.isdecimal() else 0,
                model=ModelConfig(id=""),
                execution_identity=ServiceAccount(),
                mcp_servers=(),
                skills=(),
                tools=(),
            ),
            environment_id="",
            environment=CloudConfig(),
            created_at=created_at,
            updated_at=created_at,
            created_by=SessionCreator(key_id=CLI_PRINCIPAL, name=""),
            title=title,
            origin=origin,
            workflow_run_id=row.id if run_id and name.startswith(RUN_AGENT) else run_id,
        )

    async def write(self, *changes: RecordChange) -> tuple[RecordRow, ...]:
        """The log is what a session is: changes of its record only follow."""
        own = [change for change in changes if change.row.kind == SESSION_KIND]
        others = [change for change in changes if change.row.kind != SESSION_KIND]
        written = await self.others.write(*others) if others else ()
        return (*(item.row for item in own if not isinstance(item, Remove)), *written)

    async def ids(self, query: RecordQuery) -> list[tuple[int, str]]:
        return [(row.created, row.id) for row in await self.list(query)]

    async def count(self, query: RecordQuery) -> int:
        return await self.others.count(query)

    async def named(self, kind: str, name: str, *, tenant: str, parent: str = "") -> RecordRow:
        return await self.others.named(kind, name, tenant=tenant, parent=parent)

    async def content(self, kind: str, id_: str) -> bytes:
        return await self.others.content(kind, id_)

    async def tally(self, counters: Sequence[tuple[str, int]]) -> list[int]:
        return await self.others.tally(counters)

    async def forget_tallies(self, prefix: str) -> None:
        await self.others.forget_tallies(prefix)

    async def everything(
        self, *, after: RecordRow | None = None, limit: int = 100
    ) -> list[RecordRow]:
        return await self.others.everything(after=after, limit=limit)

    async def whole(self, kind: str, id_: str) -> RecordWithContent:
        return await self.others.whole(kind, id_)

    async def tallies(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        return await self.others.tallies(after=after, limit=limit)


def _position(row: RecordRow) -> SessionRow:
    """A position in the list of sessions, to continue after it."""
    return SessionRow(id=row.id, thread_id="", created=row.created, updated=0, head=Head(0, b""))


def _run(session: RecordRow) -> RecordRow | None:
    """The record of a workflow run, if the session is one."""
    if not session.label.startswith(RUN_AGENT):
        return None
    created_at = from_micros(session.created)
    name = session.label.removeprefix(RUN_AGENT)
    run = RunRecord(id=session.id, workflow=name, created_at=created_at)
    body = msgspec.json.encode(run)
    return replace(session, kind=RUN_KIND, body=body, parent=name, label="")


def _matches(query: RecordQuery, row: RecordRow, status: str) -> bool:
    if query.kind == RUN_KIND:
        return query.parent in (None, row.parent)  # its status is only in its log
    after = query.created_from is None or row.created >= query.created_from
    is_before = query.created_upto is None or row.created <= query.created_upto
    is_labeled = query.label in (None, row.label)
    return is_labeled and after and is_before and _has_filters(query, row, status)


def _has_filters(query: RecordQuery, row: RecordRow, status: str) -> bool:
    if not query.filters:
        return True
    columns = index_columns(_DECODER.decode(row.body))
    values = {(STATUS_FILTER, status), *(columns.filters or ())}
    return all(
        any((item.name, value) in values and not is_archived for value, is_archived in item.values)
        for item in query.filters
    )
