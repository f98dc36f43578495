"""What tests of schedules, webhooks and triggers share: a clock that is set, jobs that are noted,
sessions that are only counted."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.keys import KEY

from mainspring.capabilities.network.outbound_http import HttpPoster
from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.sender import Origin
from mainspring.log.records import Put, RecordRow, Records
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.resources.agent_multiagent import AgentReference
from mainspring.service.resources.environments import CreateEnvironment, Environments
from mainspring.service.schedules.deployment_runner import (
    DeploymentRunner,
    RunRepository,
    run_repository,
)
from mainspring.service.schedules.deployment_store import DeploymentStore
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.schedules.session_starter import SessionStartRequest
from mainspring.service.schedules.trigger_intake import TriggerIntake
from mainspring.service.schedules.triggers import Triggers
from mainspring.service.webhooks.webhook_deliveries import Deliveries, DeliveryRetryPolicy
from mainspring.service.webhooks.webhook_endpoints import Webhooks
from mainspring.service.webhooks.webhook_outbox import Outbox, SessionEventForwarder

TENANT = "acme"
START = datetime(2026, 5, 4, 8, 59, 30, tzinfo=UTC)
LOOPBACK = "127.0.0.0/8"


class Crash(Exception):
    """A worker dies here."""


@dataclass
class Clock:
    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **span: float) -> None:
        self.now += timedelta(**span)


@dataclass
class Jobs:
    """An engine that a test runs by hand."""

    waiting: dict[tuple[str, str], tuple[Job, datetime | None]] = field(
        default_factory=dict[tuple[str, str], tuple[Job, datetime | None]]
    )

    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        current = self.waiting.get((job.task, job.key))
        if current is not None and (current[1] is None or (at is not None and current[1] <= at)):
            return
        self.waiting[job.task, job.key] = (job, at)

    def take(self, task: str, now: datetime) -> list[Job]:
        due = [
            job
            for job, at in self.waiting.values()
            if job.task == task and (at is None or at <= now)
        ]
        for job in due:
            del self.waiting[job.task, job.key]
        return due


@dataclass
class CountedSessions:
    """Sessions by the keys that they were ordered with."""

    orders: dict[str, SessionStartRequest] = field(default_factory=dict[str, SessionStartRequest])
    sent: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    busy: set[str] = field(default_factory=set[str])
    ended: set[str] = field(default_factory=set[str])
    refusal: Exception | None = None
    starts: int = 0
    dies_before_start: bool = False
    dies_after_start: bool = False

    async def start(self, tenant: str, request: SessionStartRequest) -> str:
        if self.refusal is not None:
            raise self.refusal
        if self.dies_before_start:
            raise Crash
        self.starts += 1
        self.orders.setdefault(request.key, request)
        if self.dies_after_start:
            raise Crash
        return f"sesn_{tenant}_{list(self.orders).index(request.key)}"

    async def send(
        self, tenant: str, session_id: str, text: str, *, key: str, origin: Origin
    ) -> None:
        if session_id in self.ended:
            raise InvalidInput("it has ended")
        self.sent.setdefault(key, (session_id, text))

    async def is_busy(self, tenant: str, session_id: str) -> bool:
        return session_id in self.busy


@dataclass
class Works:
    """All of it, over one store."""

    records: Records
    log: SessionLog
    clock: Clock
    jobs: Jobs
    sessions: CountedSessions
    webhooks: Webhooks
    outbox: Outbox
    news: SessionEventForwarder
    deliveries: Deliveries
    keep: DeploymentStore
    deployments: Deployments
    runs: RunRepository
    firing: DeploymentRunner
    triggers: Triggers
    intake: TriggerIntake
    environment_id: str = ""

    async def fire_due(self) -> None:
        for job in self.jobs.take("fire", self.clock.now):
            await self.firing.fire(job)

    async def deliver_due(self) -> None:
        for job in self.jobs.take("deliver", self.clock.now):
            await self.deliveries.deliver(job)


async def pinned(_tenant: str, agent_id: str, version: int | None) -> AgentReference:
    if not agent_id.startswith("agent_"):
        raise NotFound("agent", agent_id)
    return AgentReference(id=agent_id, version=version or 3)


def assembled(
    records: Records, log: SessionLog, *, poster: HttpPoster, patience: DeliveryRetryPolicy
) -> Works:
    clock, jobs, sessions = Clock(), Jobs(), CountedSessions()
    seal = AesSeal(bytes(32))
    webhooks = Webhooks(records, seal=seal, allow_http=True, clock=clock)
    outbox = Outbox(records, webhooks, put=jobs.put, clock=clock)
    keep = DeploymentStore(records, outbox=outbox, seal=seal, put=jobs.put, clock=clock)
    runs = run_repository(records, clock)
    triggers = Triggers(records, seal=seal, pin_agent=pinned, clock=clock)
    return Works(
        records=records,
        log=log,
        clock=clock,
        jobs=jobs,
        sessions=sessions,
        webhooks=webhooks,
        outbox=outbox,
        news=SessionEventForwarder(records, webhooks, outbox, log, clock=clock),
        deliveries=Deliveries(
            records, webhooks, post=poster, put=jobs.put, retry=patience, clock=clock
        ),
        keep=keep,
        deployments=Deployments(keep, pin_agent=pinned, clock=clock),
        runs=runs,
        firing=DeploymentRunner(keep, runs, session_starter=sessions, clock=clock),
        triggers=triggers,
        intake=TriggerIntake(triggers, session_starter=sessions, clock=clock),
    )


@asynccontextmanager
async def works(
    folder: Path, *, poster: HttpPoster | None = None, patience: DeliveryRetryPolicy | None = None
) -> AsyncGenerator[Works]:
    async with open_sqlite(folder / "mainspring.db", key=KEY) as store:
        made = assembled(
            store.records,
            SessionLog(store),
            poster=poster or HttpPoster(),
            patience=patience or DeliveryRetryPolicy(),
        )
        await furnish(made)
        yield made


async def furnish(made: Works) -> None:
    """An environment, and the record of an agent."""
    environment = await Environments(made.records).create(TENANT, CreateEnvironment(name="e"))
    made.environment_id = environment.id
    await put_agent(made.records, "agent_1")


async def put_agent(records: Records, agent_id: str) -> None:
    record = RecordRow(tenant=TENANT, kind="agent", id=agent_id, created=1, updated=1, body=b"{}")
    await records.write(Put(row=record))
