"""Sessions of a tenant: create, read, update, fork, archive, delete.

A session is its log. A record beside the log stores how the session was requested; everything that
changes while it runs is folded from the log on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec import UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import (
    AlreadyExists,
    InvalidInput,
    MainspringError,
    NotFound,
    SessionExists,
    SessionNotFound,
    StaleVersion,
)
from mainspring.core.events import ClientPayload, SessionCreated
from mainspring.core.sender import Origin
from mainspring.harness.state.projection_cache import Projections
from mainspring.log.records import SESSION_KIND
from mainspring.log.session_log import SessionLog
from mainspring.log.session_status import WAKING_TYPES
from mainspring.log.store import InboxItem, SessionRow
from mainspring.service.access.principal import Principal
from mainspring.service.resources.environments import Environment
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.events.event_content import (
    expand_skill_command,
    to_payload,
    with_shared_file_limit,
)
from mainspring.service.sessions.resource_types import attach_resource, check_resources
from mainspring.service.sessions.session_agent import (
    AgentWithOverrides,
    agent_id_of,
    snapshot_agent,
)
from mainspring.service.sessions.session_listing import ListSessions, SessionList, TwoWayPage
from mainspring.service.sessions.session_params import (
    CreateSession,
    ForkSession,
    UpdateSession,
    apply_update,
    check_models_priced,
    session_updated_event,
)
from mainspring.service.sessions.session_record import (
    ACCEPTED_KIND,
    SessionCreator,
    SessionRecord,
    index_columns,
)
from mainspring.service.sessions.session_view import (
    LoadedSession,
    SessionObject,
    cents,
    session_object,
)
from mainspring.service.storage.repository import (
    Notification,
    Repository,
    delete_children,
)

MAX_VAULTS = 50  # of a session
_CACHED_RECORD_BYTES = 8 * 1024 * 1024
"""A record may be large: it contains the agent with the schemas of its tools."""


def keyed_session_id(tenant: str, key: str) -> str:
    """The id of the session that a tenant requested with an idempotency key."""
    return ids.stable_id(ids.SESSION, tenant, key)


class Sessions:
    def __init__(
        self, log: SessionLog, dependencies: SessionDependencies, *, clock: Clock = clocks.now
    ) -> None:
        records = log.store.records
        self.log = log
        self.dependencies = dependencies
        self.repository = Repository(
            records,
            SESSION_KIND,
            SessionRecord,
            columns=index_columns,
            cache_bytes=_CACHED_RECORD_BYTES,
            clock=clock,
        )
        self.projections = Projections(log)
        self.clock = clock
        self._list = SessionList(self.repository, self._load_many)

    async def create(
        self,
        principal: Principal,
        request: CreateSession,
        *,
        origin: Origin,
        deployment_id: str | None = None,
        key: str | None = None,
    ) -> SessionObject:
        """With a `key`, repeated requests create the session and send its first events only once.

        Raises: NotFound, InvalidInput.
        """
        record = replace(
            await self.new_record(principal, request), deployment_id=deployment_id, origin=origin
        )
        lookups = with_shared_file_limit(self.dependencies.lookups)
        payloads = [
            await to_payload(lookups, principal.tenant, event, where=f"initial_events[{index}]")
            for index, event in enumerate(request.initial_events)
        ]
        record = await self._begin(principal, record, key)
        for index, payload in enumerate(payloads):
            client_id = None if key is None else f"{key}.{index}"
            payload = await expand_skill_command(
                self.dependencies, principal.tenant, record, payload
            )
            await self.log.submit(record.id, payload, sender=principal.sender, client_id=client_id)
        if payloads:
            await self.dependencies.wake_session(principal.tenant, record)
        return session_object(await self._load(record), self.clock())

    async def _begin(
        self, principal: Principal, record: SessionRecord, key: str | None
    ) -> SessionRecord:
        tenant = principal.tenant
        session_id = ids.new_id(ids.SESSION) if key is None else keyed_session_id(tenant, key)
        record = replace(record, id=session_id)
        created = SessionCreated(
            agent_name=record.agent.name,
            agent_version=str(record.agent.version),
            title=record.title,
            metadata=record.metadata or None,
            origin=record.origin,
        )
        with suppress(SessionExists):  # an earlier request was interrupted
            await self.log.create(created, session_id=session_id, sender=principal.sender)
        try:
            await self.repository.put(tenant, record)
        except AlreadyExists:
            return await self.repository.get(tenant, session_id)
        await self._notify(tenant, "created", session_id)
        return record

    async def get(self, principal: Principal, session_id: str) -> SessionObject:
        """Raises: NotFound."""
        return session_object(await self.find(principal, session_id), self.clock())

    async def page(self, principal: Principal, request: ListSessions) -> TwoWayPage[SessionObject]:
        page = await self.loaded_page(principal, request)
        now = self.clock()
        return TwoWayPage(
            data=[session_object(item, now) for item in page.data],
            next_page=page.next_page,
            prev_page=page.prev_page,
        )

    async def loaded_page(
        self, principal: Principal, request: ListSessions
    ) -> TwoWayPage[LoadedSession]:
        """A page of a list, each session with the state of its log."""
        if principal.agent_id is not None:
            if request.agent_id not in (None, principal.agent_id):
                return TwoWayPage(data=[])
            request = replace(request, agent_id=principal.agent_id)
        return await self._list.page(principal.tenant, request)

    async def update(
        self, principal: Principal, session_id: str, request: UpdateSession
    ) -> SessionObject:
        """Update a session. The record changes at once and applies from the next turn. The change
        reaches the log through the inbox: only the worker that runs the session appends directly.

        Raises: NotFound, InvalidInput, StaleVersion: the agent cannot change while it runs.
        """
        session = await self.find(principal, session_id)
        if session.status == "terminated":
            raise InvalidInput(f"session {session_id} has ended and cannot be changed")
        if not isinstance(request.vault_ids, UnsetType):
            raise InvalidInput("vault_ids: cannot be changed; create another session")
        if not isinstance(request.agent, UnsetType) and session.status != "idle":
            raise StaleVersion(
                f"session {session_id} is running: interrupt it, then change its agent"
            )
        if not isinstance(request.agent, UnsetType):
            await self.dependencies.check_override(principal, session.record.agent.id)
        spent = cents(session.projection.spent.cost_usd)
        before = session.record

        def change(current: SessionRecord) -> SessionRecord:
            nonlocal before
            before = current
            after = apply_update(principal, current, request, spent)
            if after.budget not in (None, current.budget):
                check_models_priced(after.agent, self.dependencies.lookups.is_priced)
            return replace(after, updated_at=self.clock())

        after = await self.repository.update(principal.tenant, session_id, change)
        if (event := session_updated_event(before, after)) is not None:
            await self.submit(principal, after, event)
            await self._notify(principal.tenant, "updated", session_id)
        return await self.get(principal, session_id)

    async def archive(self, principal: Principal, session_id: str) -> SessionObject:
        """Archived sessions accept no events. Raises: NotFound, StaleVersion: it is running."""
        session = await self.find(principal, session_id)
        if session.record.archived_at is None:
            _check_not_running(session, "archive")
            now = self.clock()
            await self.repository.update(
                principal.tenant,
                session_id,
                lambda record: replace(record, archived_at=now, updated_at=now),
            )
            await self.dependencies.on_session_end(
                principal.tenant, session.record, is_deleted=False
            )
            await self._notify(principal.tenant, "archived", session_id)
        return await self.get(principal, session_id)

    async def delete(self, principal: Principal, session_id: str) -> None:
        """Also deletes the log. Raises: NotFound, StaleVersion: it is running; SessionHasForks."""
        record = await self.record(principal, session_id)
        try:
            _check_not_running(await self._load(record), "delete")
            await self.log.delete(session_id)
        except SessionNotFound:
            pass  # an earlier delete was interrupted
        self.projections.forget(session_id)
        await delete_children(
            self.repository.records, ACCEPTED_KIND, tenant=principal.tenant, parent=session_id
        )
        await self.dependencies.on_session_end(principal.tenant, record, is_deleted=True)
        await self.repository.remove(principal.tenant, session_id)
        await self._notify(principal.tenant, "deleted", session_id)

    async def fork(
        self, principal: Principal, session_id: str, request: ForkSession
    ) -> SessionObject:
        """Create a session with the same events, up to `at`.

        Raises: NotFound, InvalidInput: there is no such event.
        """
        parent = await self.record(principal, session_id)
        if parent.workflow_run_id == parent.id:
            raise InvalidInput(f"session {session_id} is a workflow run: fork it as one")
        now = self.clock()
        record = replace(
            parent,
            id=ids.new_id(ids.SESSION),
            workflow_run_id=None,
            created_at=now,
            updated_at=now,
            created_by=SessionCreator.of(principal),
            title=parent.title if request.title is None else request.title,
            deployment_id=None,
            origin=Origin(type="api", id=principal.key_id),
            archived_at=None,
        )
        # record first: a fork without one could not be deleted and would keep its parent forever
        await self.repository.put(principal.tenant, record)
        try:
            await self.log.fork(
                session_id,
                at=request.at,
                title=request.title,
                fork_id=record.id,
                sender=principal.sender,
            )
        except MainspringError:
            await self.repository.remove(principal.tenant, record.id)
            raise
        await self._notify(principal.tenant, "created", record.id)
        return session_object(await self._load(record), now)

    async def record(self, principal: Principal, session_id: str) -> SessionRecord:
        """Raises: NotFound, also for sessions of other tenants or outside the scope of the key."""
        record = await self.repository.get(principal.tenant, session_id)
        is_agents = principal.agent_id in (None, record.agent.id)
        if not is_agents or principal.environment_id not in (None, record.environment_id):
            raise NotFound(SESSION_KIND, session_id)
        return record

    async def find(self, principal: Principal, session_id: str) -> LoadedSession:
        """Raises: NotFound."""
        try:
            return await self._load(await self.record(principal, session_id))
        except SessionNotFound:
            raise NotFound(SESSION_KIND, session_id) from None

    async def row(self, principal: Principal, session_id: str) -> SessionRow:
        """The row of a session's log, without its events. Raises: NotFound, SessionNotFound."""
        return await self.log.session((await self.record(principal, session_id)).id)

    async def submit(
        self,
        principal: Principal,
        session: SessionRecord,
        *payloads: ClientPayload,
        client_ids: Sequence[str | None] = (),
        thread_ids: Sequence[str | None] = (),
        row: SessionRow | None = None,
    ) -> list[InboxItem]:
        """Put checked events into the inbox, in order, and wake the session. `row`: see
        `SessionLog.submit`."""
        items = [
            await self.log.submit(
                session.id,
                payload,
                sender=principal.sender,
                client_id=client_ids[index] if client_ids else None,
                thread_id=thread_ids[index] if thread_ids else None,
                row=row,
            )
            for index, payload in enumerate(payloads)
        ]
        await self.dependencies.wake_session(principal.tenant, session)
        return items

    async def new_record(self, principal: Principal, request: CreateSession) -> SessionRecord:
        """A new record, not stored, without an id. Raises: NotFound, InvalidInput, Forbidden."""
        if principal.agent_id not in (None, agent_id_of(request.agent)):
            raise NotFound("agent", agent_id_of(request.agent))
        tenant, lookups, now = principal.tenant, self.dependencies.lookups, self.clock()
        if isinstance(request.agent, AgentWithOverrides) and request.agent.has_other_tools:
            await self.dependencies.check_override(principal, request.agent.id)
        agent = await snapshot_agent(self.dependencies.agents, principal, request.agent)
        if request.budget is not None:
            check_models_priced(agent, lookups.is_priced)
        environment = await self.dependencies.environments.get(tenant, request.environment_id)
        _check_open(environment)
        if len(request.vault_ids) > MAX_VAULTS:
            raise InvalidInput(f"vault_ids: at most {MAX_VAULTS}")
        for vault_id in request.vault_ids:
            await lookups.check_vault(tenant, vault_id)
        attached = [
            await attach_resource(lookups, tenant, resource, id_=ids.new_id("sesrsc"), now=now)
            for resource in request.resources
        ]
        resources = tuple(item.resource for item in attached)
        check_resources(resources, environment.config)
        return SessionRecord(
            id="",
            agent=agent,
            environment_id=environment.id,
            environment=environment.config,
            created_at=now,
            updated_at=now,
            created_by=SessionCreator.of(principal),
            title=request.title,
            metadata=request.metadata or {},
            vault_ids=request.vault_ids,
            resources=resources,
            sealed={item.resource.id: item.sealed for item in attached if item.sealed is not None},
            budget=request.budget,
        )

    async def _load(self, record: SessionRecord) -> LoadedSession:
        row = await self.log.session(record.id)
        waiting = await self.log.store.pending(record.id, types=WAKING_TYPES, limit=1)
        return LoadedSession(
            record=record,
            row=row,
            projection=await self.projections.of(row),
            has_pending_input=bool(waiting),
        )

    async def _load_many(self, records: Sequence[SessionRecord]) -> list[LoadedSession]:
        """Those that exist, in the same order. The number of statements does not depend on theirs,
        but on the length of the longest log that was not read yet."""
        ids_ = [record.id for record in records]
        rows = {row.id: row for row in await self.log.store.rows(ids_)}
        waiting = await self.log.store.first_pending([*rows], WAKING_TYPES)
        projections = await self.projections.of_many([*rows.values()])
        return [
            LoadedSession(
                record=record,
                row=rows[record.id],
                projection=projections[record.id],
                has_pending_input=record.id in waiting,
            )
            for record in records
            if record.id in projections
        ]

    async def _notify(self, tenant: str, action: str, session_id: str) -> None:
        await self.dependencies.notify(
            Notification(tenant=tenant, type=f"session.{action}", id=session_id)
        )


def _check_open(environment: Environment) -> None:
    if environment.archived_at is not None:
        raise InvalidInput(f"environment_id: {environment.id} is archived; choose another")


def _check_not_running(session: LoadedSession, action: str) -> None:
    if session.status in ("running", "rescheduling"):
        raise StaleVersion(
            f"session {session.record.id} is running: send it a user.interrupt, then {action} it"
        )
