"""Sessions of a tenant: made, looked at, changed, archived, deleted.

A session is its log. Beside it is a record of how it was asked for; everything that changes by
running is folded from the log when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated

from msgspec import Meta, Struct, UnsetType
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
from mainspring.core.events import ClientPayload
from mainspring.core.facts import SessionCreated
from mainspring.core.ids import EnvironmentId, VaultId
from mainspring.core.sender import Origin
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem, SessionRow
from mainspring.service.access.principal import Principal
from mainspring.service.resources.environments import Environment
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.event_content import to_payload, with_shared_file_limit
from mainspring.service.sessions.event_params import InitialEvents
from mainspring.service.sessions.resource_types import (
    ResourcesParams,
    attach_resource,
    check_resources,
)
from mainspring.service.sessions.session_agent import (
    AgentChoice,
    AgentWithOverrides,
    agent_id_of,
    snapshot_agent,
)
from mainspring.service.sessions.session_digest import Digests
from mainspring.service.sessions.session_listing import ListSessions, SessionList, TwoWayPage
from mainspring.service.sessions.session_record import (
    ACCEPTED_KIND,
    KIND,
    ListCostBudget,
    SessionCreator,
    SessionRecord,
    Title,
    index_columns,
)
from mainspring.service.sessions.session_update import (
    UpdateSession,
    apply_update,
    check_models_priced,
    session_updated_event,
)
from mainspring.service.sessions.session_view import (
    LoadedSession,
    SessionObject,
    cents,
    session_object,
)
from mainspring.service.sessions.spelling import expand_skill_command
from mainspring.service.storage.metadata import Metadata
from mainspring.service.storage.notifications import Notification
from mainspring.service.storage.repository import Repository, delete_children

MAX_VAULTS = 50
_WAKING_TYPES = frozenset(
    {
        "user.message",
        "user.tool_confirmation",
        "user.custom_tool_result",
        "user.tool_result",
        "user.define_outcome",
    }
)
"""What a session runs for, once it was sent."""


def keyed_session_id(tenant: str, key: str) -> str:
    """The session that a tenant has asked for under a key."""
    return ids.stable_id(ids.SESSION, tenant, key)


class CreateSession(Struct, frozen=True, kw_only=True):
    agent: AgentChoice
    environment_id: EnvironmentId
    budget: ListCostBudget | None = None
    initial_events: InitialEvents = ()
    metadata: Metadata | None = None
    resources: ResourcesParams = ()
    title: Title | None = None
    vault_ids: tuple[VaultId, ...] = ()


class ForkSession(Struct, frozen=True, kw_only=True):
    at: Annotated[int, Meta(ge=1)] | None = None
    """The last event that both have: its place in the log, as streams say it in `id`. Absent: all
    that there are."""
    title: Title | None = None


class Sessions:
    def __init__(
        self,
        log: SessionLog,
        dependencies: SessionDependencies,
        *,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        records = log.store.records
        self.log = log
        self.dependencies = dependencies
        self.repository = Repository(
            records, KIND, SessionRecord, columns=index_columns, clock=clock
        )
        self.digests = Digests(log)
        self.clock = clock
        self.new_id = new_id
        self._list = SessionList(records, self._load_if_present)

    async def create(
        self,
        who: Principal,
        asked: CreateSession,
        *,
        origin: Origin,
        deployment_id: str | None = None,
        key: str | None = None,
    ) -> SessionObject:
        """With a `key` it is made once, however often it is asked for, and so is all that is sent
        to it at first.

        Raises: NotFound, InvalidInput.
        """
        record = replace(
            await self.new_record(who, asked), deployment_id=deployment_id, origin=origin
        )
        around = with_shared_file_limit(self.dependencies.lookups)
        first = [
            await to_payload(around, who.tenant, each, where=f"initial_events[{index}]")
            for index, each in enumerate(asked.initial_events)
        ]
        record = await self._begin(who, record, key)
        for index, payload in enumerate(first):
            client_id = None if key is None else f"{key}.{index}"
            said = await expand_skill_command(self.dependencies, who.tenant, record, payload)
            await self.log.submit(record.id, said, sender=who.sender, client_id=client_id)
        if first:
            await self.dependencies.wake_session(who.tenant, record.id)
        return session_object(await self._load(record), self.clock())

    async def _begin(self, who: Principal, record: SessionRecord, key: str | None) -> SessionRecord:
        tenant = who.tenant
        session_id = self.new_id(ids.SESSION) if key is None else keyed_session_id(tenant, key)
        record = replace(record, id=session_id)
        created = SessionCreated(
            agent_name=record.agent.name,
            agent_version=str(record.agent.version),
            title=record.title,
            metadata=record.metadata or None,
            origin=record.origin,
        )
        with suppress(SessionExists):  # whoever asked before did not get to the end
            await self.log.create(created, session_id=session_id, sender=who.sender)
        try:
            await self.repository.put(tenant, record)
        except AlreadyExists:
            return await self.repository.get(tenant, session_id)
        await self._notify(tenant, "created", session_id)
        return record

    async def get(self, who: Principal, session_id: str) -> SessionObject:
        """Raises: NotFound."""
        return session_object(await self.find(who, session_id), self.clock())

    async def page(self, who: Principal, asked: ListSessions) -> TwoWayPage[SessionObject]:
        if who.agent_id is not None:
            if asked.agent_id not in (None, who.agent_id):
                return TwoWayPage(data=[])
            asked = replace(asked, agent_id=who.agent_id)
        found = await self._list.page(who.tenant, asked)
        now = self.clock()
        return TwoWayPage(
            data=[session_object(item, now) for item in found.data],
            next_page=found.next_page,
            prev_page=found.prev_page,
        )

    async def update(self, who: Principal, session_id: str, asked: UpdateSession) -> SessionObject:
        """What is changed is in the record at once, for the next turn to go by; the log is told
        through the inbox, as it only takes what comes that way or from who runs the session.

        Raises: NotFound, InvalidInput, Stale: it runs, and the agent was to be changed.
        """
        standing = await self.find(who, session_id)
        if standing.status == "terminated":
            raise InvalidInput(f"session {session_id} has ended and stays as it is")
        if not isinstance(asked.vault_ids, UnsetType):
            raise InvalidInput("vault_ids: cannot be changed; make another session")
        if not isinstance(asked.agent, UnsetType) and standing.status != "idle":
            raise StaleVersion(
                f"session {session_id} is running: interrupt it, then change its agent"
            )
        if not isinstance(asked.agent, UnsetType):
            await self.dependencies.check_override(who, standing.record.agent.id)
        spent = cents(standing.digest.spent.cost_usd)
        before = standing.record

        def change(known: SessionRecord) -> SessionRecord:
            nonlocal before
            before = known
            after = apply_update(who, known, asked, spent)
            if after.budget not in (None, known.budget):
                check_models_priced(after.agent, self.dependencies.lookups.is_priced)
            return replace(after, updated_at=self.clock())

        after = await self.repository.update(who.tenant, session_id, change)
        if (news := session_updated_event(before, after)) is not None:
            await self.submit(who, session_id, news)
            await self._notify(who.tenant, "updated", session_id)
        return await self.get(who, session_id)

    async def archive(self, who: Principal, session_id: str) -> SessionObject:
        """It takes no events any more. Raises: NotFound, Stale: it runs."""
        standing = await self.find(who, session_id)
        if standing.record.archived_at is None:
            _check_not_running(standing, "archive")
            now = self.clock()
            await self.repository.update(
                who.tenant,
                session_id,
                lambda known: replace(known, archived_at=now, updated_at=now),
            )
            await self.dependencies.on_session_end(who.tenant, standing.record, is_deleted=False)
            await self._notify(who.tenant, "archived", session_id)
        return await self.get(who, session_id)

    async def delete(self, who: Principal, session_id: str) -> None:
        """With its log. Raises: NotFound, Stale: it runs; SessionHasForks."""
        record = await self.record(who, session_id)
        try:
            _check_not_running(await self._load(record), "delete")
            await self.log.delete(session_id)
        except SessionNotFound:
            pass  # it went so far before, and no further
        self.digests.forget(session_id)
        await delete_children(
            self.repository.records, ACCEPTED_KIND, tenant=who.tenant, parent=session_id
        )
        await self.dependencies.on_session_end(who.tenant, record, is_deleted=True)
        await self.repository.remove(who.tenant, session_id)
        await self._notify(who.tenant, "deleted", session_id)

    async def fork(self, who: Principal, session_id: str, asked: ForkSession) -> SessionObject:
        """Another session that begins as this one did, up to an event.

        Raises: NotFound, InvalidInput: there is no such event.
        """
        parent = await self.record(who, session_id)
        now = self.clock()
        record = replace(
            parent,
            id=self.new_id(ids.SESSION),
            created_at=now,
            updated_at=now,
            created_by=SessionCreator.of(who),
            title=parent.title if asked.title is None else asked.title,
            deployment_id=None,
            origin=Origin(type="api", id=who.key_id),
            archived_at=None,
        )
        # the record first: a fork that nobody can find or delete would keep its parent for ever
        await self.repository.put(who.tenant, record)
        try:
            await self.log.fork(
                session_id,
                at=asked.at,
                title=asked.title,
                fork_id=record.id,
                sender=who.sender,
            )
        except MainspringError:
            await self.repository.remove(who.tenant, record.id)
            raise
        await self._notify(who.tenant, "created", record.id)
        return session_object(await self._load(record), now)

    async def record(self, who: Principal, session_id: str) -> SessionRecord:
        """Raises: NotFound, also for what is another tenant's, or not what the key is for."""
        record = await self.repository.get(who.tenant, session_id)
        is_agents = who.agent_id in (None, record.agent.id)
        if not is_agents or who.environment_id not in (None, record.environment_id):
            raise NotFound(KIND, session_id)
        return record

    async def find(self, who: Principal, session_id: str) -> LoadedSession:
        """Raises: NotFound."""
        try:
            return await self._load(await self.record(who, session_id))
        except SessionNotFound:
            raise NotFound(KIND, session_id) from None

    async def row(self, who: Principal, session_id: str) -> SessionRow:
        """Where its log stands, without reading it. Raises: NotFound, SessionNotFound."""
        return await self.log.session((await self.record(who, session_id)).id)

    async def submit(
        self,
        who: Principal,
        session_id: str,
        *payloads: ClientPayload,
        client_ids: Sequence[str | None] = (),
        thread_ids: Sequence[str | None] = (),
    ) -> list[InboxItem]:
        """Put what was checked into the inbox, in order, and have it taken up."""
        items: list[InboxItem] = []
        for index, payload in enumerate(payloads):
            items.append(
                await self.log.submit(
                    session_id,
                    payload,
                    sender=who.sender,
                    client_id=client_ids[index] if client_ids else None,
                    thread_id=thread_ids[index] if thread_ids else None,
                )
            )
        await self.dependencies.wake_session(who.tenant, session_id)
        return items

    async def new_record(self, who: Principal, asked: CreateSession) -> SessionRecord:
        """Without an id, and not stored. Raises: NotFound, InvalidInput, Forbidden."""
        if who.agent_id not in (None, agent_id_of(asked.agent)):
            raise NotFound("agent", agent_id_of(asked.agent))
        tenant, around, now = who.tenant, self.dependencies.lookups, self.clock()
        if isinstance(asked.agent, AgentWithOverrides) and asked.agent.has_other_tools:
            await self.dependencies.check_override(who, asked.agent.id)
        agent = await snapshot_agent(self.dependencies.agents, who, asked.agent)
        if asked.budget is not None:
            check_models_priced(agent, around.is_priced)
        environment = await self.dependencies.environments.get(tenant, asked.environment_id)
        _check_open(environment)
        if len(asked.vault_ids) > MAX_VAULTS:
            raise InvalidInput(f"vault_ids: at most {MAX_VAULTS}")
        for vault_id in asked.vault_ids:
            await around.check_vault(tenant, vault_id)
        joined = [
            await attach_resource(around, tenant, resource, id_=self.new_id("sesrsc"), now=now)
            for resource in asked.resources
        ]
        resources = tuple(item.session_resource for item in joined)
        check_resources(resources, environment.config)
        return SessionRecord(
            id="",
            agent=agent,
            environment_id=environment.id,
            environment=environment.config,
            created_at=now,
            updated_at=now,
            created_by=SessionCreator.of(who),
            title=asked.title,
            metadata=asked.metadata or {},
            vault_ids=asked.vault_ids,
            resources=resources,
            sealed={
                item.session_resource.id: item.sealed for item in joined if item.sealed is not None
            },
            budget=asked.budget,
        )

    async def _load(self, record: SessionRecord) -> LoadedSession:
        row = await self.log.session(record.id)
        waiting = await self.log.store.pending(record.id, types=_WAKING_TYPES, limit=1)
        return LoadedSession(
            record=record,
            row=row,
            digest=await self.digests.of(row),
            has_pending_input=bool(waiting),
        )

    async def _load_if_present(self, record: SessionRecord) -> LoadedSession | None:
        try:
            return await self._load(record)
        except SessionNotFound:
            return None

    async def _notify(self, tenant: str, what: str, session_id: str) -> None:
        await self.dependencies.notify(
            Notification(tenant=tenant, type=f"session.{what}", id=session_id)
        )


def _check_open(environment: Environment) -> None:
    if environment.archived_at is not None:
        raise InvalidInput(f"environment_id: {environment.id} is archived; choose another")


def _check_not_running(loaded_session: LoadedSession, act: str) -> None:
    if loaded_session.status in ("running", "rescheduling"):
        raise StaleVersion(
            f"session {loaded_session.record.id} is running: send it a "
            f"user.interrupt, then {act} it"
        )
