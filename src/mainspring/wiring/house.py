"""The house: everything that the service keeps and does over one store, put together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path

from mainspring.capabilities.network.rules import Network
from mainspring.config import Settings, is_postgres
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, StoreFailed
from mainspring.log.session_log import SessionLog
from mainspring.service.access.audit import Audit
from mainspring.service.access.halts import Halts
from mainspring.service.access.keys import Keys
from mainspring.service.access.ledger import TallyLedger
from mainspring.service.access.repeated_requests import RepeatedRequests
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approvals import Approvals
from mainspring.service.approvals.policy import Policies
from mainspring.service.calendar.deployments import Deployments
from mainspring.service.calendar.firing import Firing
from mainspring.service.calendar.intake import Intake
from mainspring.service.calendar.keep import DeploymentKeep
from mainspring.service.calendar.runs import DeploymentRuns
from mainspring.service.calendar.triggers import Triggers
from mainspring.service.describing.agent_roster import AgentReference
from mainspring.service.describing.agents import Agents
from mainspring.service.describing.environments import Environments, SelfHostedConfig
from mainspring.service.describing.files import Files
from mainspring.service.describing.skills import Skills
from mainspring.service.keeping.sweeping import sweep
from mainspring.service.mail.deliveries import Deliveries, Poster
from mainspring.service.mail.outbox import Outbox
from mainspring.service.mail.session_news import SessionNews
from mainspring.service.mail.webhooks import Webhooks
from mainspring.service.memory.memories import Memories
from mainspring.service.memory.stores import MemoryStores
from mainspring.service.memory.versions import MemoryVersions
from mainspring.service.self_hosted.queue import Terms, WorkQueue
from mainspring.service.self_hosted.tokens import WorkTokens
from mainspring.service.self_hosted.wanted import wanted_by
from mainspring.service.sessions.commands import SessionCommands
from mainspring.service.sessions.deltas import Deltas, LocalDeltas, SharedDeltas
from mainspring.service.sessions.event_pages import EventPages
from mainspring.service.sessions.ordering import Ordering
from mainspring.service.sessions.outputs import SessionOutputs
from mainspring.service.sessions.premises import Premises
from mainspring.service.sessions.record import SessionRecord
from mainspring.service.sessions.resources import SessionResources
from mainspring.service.sessions.sending import Sending
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.sessions.streams import Streams
from mainspring.service.sessions.surroundings import FileContent, StoreName, Surroundings
from mainspring.service.sessions.threads import Threads
from mainspring.service.vaults.credentials import Credentials
from mainspring.service.vaults.refreshing import Refresher
from mainspring.service.vaults.usable import UsableCredentials
from mainspring.service.vaults.validating import Validator
from mainspring.service.vaults.vaults import Vaults
from mainspring.service.work.dispatch import Dispatcher, Job
from mainspring.service.work.embedded import EmbeddedDispatcher
from mainspring.service.work.parking import WAKE, Parking
from mainspring.service.work.workspace_expiry import KIND as EXPIRY
from mainspring.wiring.asking import Asker, Greeting
from mainspring.wiring.clearing import CLEAR
from mainspring.wiring.posting import HttpPoster
from mainspring.wiring.rooms import (
    Calendar,
    Gatehouse,
    Ground,
    House,
    Mail,
    Memory,
    Safe,
    Shelves,
    Talk,
)
from mainspring.wiring.runtime import open_shelf
from mainspring.wiring.seals import open_seal
from mainspring.wiring.session_skills import SessionSkills
from mainspring.wiring.stores import open_log


@asynccontextmanager
async def open_house(
    settings: Settings,
    *,
    networks: tuple[Network, ...] = (),
    tenant_limit: int | None = None,
    metered: Callable[[Poster], Poster] = lambda post: post,
) -> AsyncGenerator[House, None]:
    """Over the store that the settings name; nothing works in it yet, and nobody is let in.
    `networks` and `metered`: see `Ground`; `tenant_limit`: how many jobs of one tenant run at once.

    Raises: InvalidInput, StoreFailed: it cannot be opened, and why.
    """
    async with (
        open_log(settings) as log,
        open_shelf(settings) as shelf,
        _open_lines(settings, log, tenant_limit) as (dispatcher, deltas),
    ):
        ground = Ground(
            settings=settings,
            log=log,
            dispatcher=dispatcher,
            deltas=deltas,
            seal=open_seal(settings),
            shelf=shelf,
            networks=networks,
            metered=metered,
        )
        yield built(ground)


def built(ground: Ground) -> House:
    records = ground.store.records
    mail = _mail(ground)
    shelves = Shelves(
        agents=Agents(records, check_model=ground.shelf.facts),
        environments=Environments(records),
        skills=Skills(records),
        files=Files(records),
    )
    safe = _safe(ground, mail.outbox)
    memory = _memory(ground)
    talk = _talk(ground, shelves, safe, memory, mail)
    return House(
        ground=ground,
        shelves=shelves,
        safe=safe,
        memory=memory,
        mail=mail,
        talk=talk,
        calendar=_calendar(ground, shelves, talk, mail.outbox),
        gatehouse=Gatehouse(
            keys=Keys(records),
            tenants=Tenants(records),
            halts=Halts(records),
            ledger=TallyLedger(records),
            audit=Audit(records),
            repeated=RepeatedRequests(records, ground.seal),
        ),
    )


@asynccontextmanager
async def _open_lines(
    settings: Settings, log: SessionLog, tenant_limit: int | None
) -> AsyncGenerator[tuple[Dispatcher, Deltas], None]:
    """How processes of the service hear of each other: by the database, if it is shared."""
    if not is_postgres(settings.store):
        yield EmbeddedDispatcher(log.store.records, tenant_limit=tenant_limit), LocalDeltas()
        return
    fleet = import_module("mainspring.wiring.fleet")  # by name: an extra, and long to import
    broadcast = import_module("mainspring.log.postgres.broadcast")
    async with (
        fleet.open_fleet(settings.store, tenant_limit=tenant_limit) as dispatcher,
        broadcast.open_broadcast(settings.store) as radio,
    ):
        yield dispatcher, SharedDeltas(radio)


def _mail(ground: Ground) -> Mail:
    records, put = ground.store.records, ground.dispatcher.put
    allow_http = bool(ground.networks)  # inside, not everything speaks TLS
    webhooks = Webhooks(records, seal=ground.seal, allow_http=allow_http)
    outbox = Outbox(records, webhooks, put=put)
    poster = ground.metered(HttpPoster(allowed=ground.networks, allow_http=allow_http))
    return Mail(
        webhooks=webhooks,
        outbox=outbox,
        deliveries=Deliveries(records, webhooks, post=poster, put=put),
        news=SessionNews(records, webhooks, outbox, ground.log),
    )


def _safe(ground: Ground, outbox: Outbox) -> Safe:
    records, notify = ground.store.records, outbox.notify
    asker = Asker(allowed=ground.networks)
    vaults = Vaults(records, notify=notify)
    credentials = Credentials(records, ground.seal, vaults, notify=notify)
    refresher = Refresher(credentials, asker, notify=notify)
    return Safe(
        vaults=vaults,
        credentials=credentials,
        validator=Validator(credentials, probe=Greeting(asker), refresher=refresher),
        usable=UsableCredentials(records, credentials, refresher),
    )


def _memory(ground: Ground) -> Memory:
    records = ground.store.records
    stores = MemoryStores(records)  # what becomes of them is told by the routes
    return Memory(
        stores=stores,
        memories=Memories(records, stores),
        versions=MemoryVersions(records, stores),
    )


def _talk(ground: Ground, shelves: Shelves, safe: Safe, memory: Memory, mail: Mail) -> Talk:
    async def wake(tenant: str, session_id: str) -> None:
        # What is in the inbox is found again by looking: no need to write down that it is there,
        # nor to refuse what was taken because nobody could be told: it would be sent again.
        with suppress(StoreFailed):
            await ground.dispatcher.remind([Job(task=WAKE, key=session_id, tenant=tenant)])
            await offer(talk, tenant, await sessions.drawer.get(tenant, session_id))

    async def over(tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
        await talk.work.withdraw(tenant, session.environment_id, session.id)
        await talk.approvals.keeper.catch_up(tenant, session.id)  # nobody waits there any more
        if is_deleted:
            await mail.news.forget(tenant, session.id)
            await talk.outputs.forget(tenant, session.id)
            await sweep(ground.store.records, EXPIRY, tenant=tenant, parent=session.id)
            await talk.parking.forget(Job(task=WAKE, key=session.id, tenant=tenant))
            await ground.dispatcher.put(Job(task=CLEAR, key=session.id, tenant=tenant))

    async def memory_store(tenant: str, store_id: str) -> StoreName:
        store = await memory.stores.active(tenant, store_id)
        return StoreName(name=store.name, description=store.description or "")

    sessions = Sessions(
        ground.log,
        Premises(
            agents=shelves.agents,
            environments=shelves.environments,
            around=Surroundings(
                seal=ground.seal,
                file_content=file_content(shelves.files),
                check_file=shelves.files.get,
                check_vault=safe.vaults.active,
                memory_store=memory_store,
            ),
            wake=wake,
            over=over,
            actor=SessionSkills(Path(ground.settings.workspaces), shelves.skills).actor,
            may_override=Policies(ground.store.records).require_overriding,
            notify=mail.outbox.notify,
        ),
    )
    tokens = WorkTokens(ground.store.records, ground.seal)
    sending = Sending(sessions)
    talk = Talk(
        sessions=sessions,
        sending=sending,
        commands=SessionCommands(sessions, sending),
        pages=EventPages(ground.log),
        threads=Threads(sessions),
        resources=SessionResources(sessions),
        outputs=SessionOutputs(ground.store.records, shelves.files),
        streams=Streams(ground.log, ground.deltas),
        work=WorkQueue(
            ground.store.records,
            shelves.environments,
            Terms(is_wanted=wanted_by(sessions), issue=tokens.secret),
        ),
        work_tokens=tokens,
        parking=Parking(ground.log, ground.dispatcher),
        approvals=Approvals(
            ground.log,
            wake=wake,
            put=ground.dispatcher.put,
            teller=mail.outbox,
            digests=sessions.digests,
        ),
    )
    return talk


async def offer(talk: Talk, tenant: str, session: SessionRecord) -> None:
    """Have a worker of the client's look after a session, if its hands are the client's."""
    if isinstance(session.environment, SelfHostedConfig):
        await talk.work.offer(tenant, session.environment_id, session.id)


def file_content(files: Files) -> Callable[[str, str], Awaitable[FileContent]]:
    async def content(tenant: str, file_id: str) -> FileContent:
        file, held = await files.content(tenant, file_id)
        return FileContent(content=held, media_type=file.mime_type, name=file.filename)

    return content


def _calendar(ground: Ground, shelves: Shelves, talk: Talk, outbox: Outbox) -> Calendar:
    async def pin_agent(tenant: str, agent_id: str, version: int | None) -> AgentReference:
        agent = await shelves.agents.get(tenant, agent_id, version)
        if agent.archived_at is not None:
            raise InvalidInput(f"agent {agent_id} is archived; nothing new is started with it")
        return AgentReference(id=agent.id, version=agent.version)

    records = ground.store.records
    keep = DeploymentKeep(
        records, outbox=outbox, seal=ground.seal, put=ground.dispatcher.put, clock=clock.now
    )
    runs = DeploymentRuns(records)
    ordering = Ordering(talk.sessions, talk.sending)
    triggers = Triggers(records, seal=ground.seal, pin_agent=pin_agent)
    return Calendar(
        deployments=Deployments(keep, pin_agent=pin_agent),
        runs=runs,
        firing=Firing(keep, runs, sessions=ordering),
        triggers=triggers,
        intake=Intake(triggers, sessions=ordering),
    )
