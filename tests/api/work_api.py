"""Self-hosted environments on loopback: the real door and gates, a scripted model, and workers of
the official SDK."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anthropic import AsyncAnthropic
from anthropic.lib.environments import EnvironmentWorker, EnvironmentWorkerTools
from anthropic.types.beta import BetaManagedAgentsSession
from anyio.abc import TaskGroup
from tests.api import memory_api
from tests.api.agents_api import CUSTOM, MODEL
from tests.api.api_server import official_client

from mainspring.capabilities.tools.client_tools import client_tools
from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.config import read_settings
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.routes.define.agents import AgentRoutes
from mainspring.edges.api.routes.define.environments import EnvironmentRoutes
from mainspring.edges.api.routes.define.skills import SkillRoutes
from mainspring.edges.api.routes.run.events import EventRoutes, StreamRoutes
from mainspring.edges.api.routes.run.sessions import SessionRoutes
from mainspring.edges.api.routes.run.work import WorkRoutes
from mainspring.harness.authorizer import AllowAll
from mainspring.log.records import SESSION_KIND
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.session import Runtime, Session
from mainspring.service.access.api_keys import CreateKey, Keys, ensure_first_key
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_policy import AnswerPermission
from mainspring.service.authorization.authentication import Authenticator
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.environments import Environments, SelfHostedConfig
from mainspring.service.resources.skill_resources import Skills
from mainspring.service.self_hosted.work_item import LeaseTimes
from mainspring.service.self_hosted.work_queue import WorkQueue, needs_worker
from mainspring.service.self_hosted.work_tokens import WorkTokens
from mainspring.service.sessions.agent_mapper import SessionSpec, map_session
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_pages import EventPages
from mainspring.service.sessions.events.event_streams import EventStreams
from mainspring.service.sessions.events.preview_deltas import LocalDeltas
from mainspring.service.sessions.resource_types import MemoryStoreInfo, ResourceLookups
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.repository import ListQuery
from mainspring.testing import Model
from mainspring.wiring import sandboxes as sandbox_pools
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.stores import open_log
from mainspring.wiring.thread_implementations import toolbox_builder

TOOLSET: dict[str, Any] = {
    "type": "agent_toolset_20260401",
    "default_config": {"enabled": True, "permission_policy": {"type": "always_allow"}},
}
CAREFUL: dict[str, Any] = {
    "type": "agent_toolset_20260401",
    "default_config": {"enabled": True, "permission_policy": {"type": "always_ask"}},
}
USUAL: list[Any] = [TOOLSET, CUSTOM]


@dataclass(slots=True)
class Runner:
    """Runs what is woken as the service would, and offers its work."""

    workspaces: Path
    group: TaskGroup
    toolbox_factory: Any = None
    shelf: Any = None
    log: Any = None
    queue: Any = None
    locks: dict[str, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))

    async def wake(self, tenant: str, session: SessionRecord) -> None:
        await self._offer(tenant, session)
        self.group.start_soon(self._run, tenant, session.id)

    async def _run(self, tenant: str, session_id: str) -> None:
        record = await self._record(session_id)
        workspace = self.workspaces / session_id
        part = SessionSpec(
            agent=record.agent,
            environment=record.environment,
            workspace=workspace,
            client_tools=client_tools,
        )
        cast = map_session(part)
        workspace.mkdir(parents=True, exist_ok=True)
        async with self.locks[session_id]:
            runtime = Runtime(
                self.log, self.shelf, toolbox_factory=self.toolbox_factory, options=cast.options
            )
            await Session(runtime, cast.agent, session_id).run()
        await self._offer(tenant, record)

    async def _offer(self, tenant: str, record: SessionRecord) -> None:
        if isinstance(record.environment, SelfHostedConfig):
            await self.queue.offer(tenant, record.environment_id, record.id)

    async def _record(self, session_id: str) -> SessionRecord:
        found = await self.log.store.records.get(SESSION_KIND, session_id)
        return msgspec.json.decode(found.body, type=SessionRecord)


@dataclass(frozen=True, slots=True)
class Site:
    url: str
    log: SessionLog
    queue: WorkQueue
    root: str
    """The administrator's key."""

    def client(self, key: str | None = None) -> AsyncAnthropic:
        return official_client(self.url, key or self.root)

    async def environment_key(self, environment_id: str) -> str:
        who = Principal(tenant="default", key_id="cli", role="admin", name="olga")
        asked = CreateKey(name="worker", role="user", environment_id=environment_id)
        return (await Keys(self.log.store.records).create(who, asked)).key

    async def until(self, session_id: str, kind: str, times: int = 1) -> None:
        """Wait for so many events of this kind."""
        with anyio.fail_after(60):
            async for _ in self.log.follow(session_id, types=[kind]):
                times -= 1
                if times == 0:
                    return

    async def until_work_is(self, environment_id: str, state: str) -> None:
        """Wait for the newest item to be in a state."""
        listing = ListQuery(parent=environment_id, include_archived=True, limit=1)

        async def newest() -> str:
            return (await self.queue.page("default", environment_id, listing)).data[0].state

        with anyio.fail_after(60):
            while await newest() != state:  # noqa: ASYNC110 (a record: nobody tells of its change)
                await anyio.sleep(0.02)

    async def until_done(self, session_id: str) -> None:
        """Wait for an idle that ends the turn."""
        with anyio.fail_after(60):
            async for event in self.log.follow(session_id, types=["session.status_idle"]):
                if b"requires_action" not in event.body:
                    return

    async def kinds(self, session_id: str) -> list[str]:
        return [event.type for event in await self.log.read(session_id)]

    @asynccontextmanager
    async def worker(
        self, environment_id: str, workdir: Path, tools: EnvironmentWorkerTools | None = None
    ) -> AsyncGenerator[None]:
        """The official worker, until the block ends."""
        key = await self.environment_key(environment_id)
        async with self.client("parent-key-is-not-used") as client, anyio.create_task_group() as tg:
            worker = EnvironmentWorker(
                client,
                environment_id=environment_id,
                environment_key=key,
                workdir=workdir,
                max_idle=0.2,
                tools=tools,
            )
            tg.start_soon(worker.run)
            yield
            tg.cancel_scope.cancel()


def routes(
    log: SessionLog, sessions: Sessions, agents: Agents, streams: EventStreams, queue: WorkQueue
) -> tuple[Route, ...]:
    return (
        *routes_of(AgentRoutes(agents)),
        *routes_of(EnvironmentRoutes(sessions.dependencies.environments)),
        *routes_of(SessionRoutes(sessions)),
        *routes_of(
            EventRoutes(
                sessions,
                EventSender(sessions, AnswerPermission(log.store.records)),
                EventPages(log),
            )
        ),
        *routes_of(StreamRoutes(streams, sessions.find)),
        *routes_of(SkillRoutes(Skills(log.store.records))),
        *memory_api.routes(log.store.records),
        *routes_of(WorkRoutes(queue)),
    )


@asynccontextmanager
async def site(
    folder: Path, model: Model, *, leases: LeaseTimes | None = None
) -> AsyncGenerator[Site]:
    settings = read_settings(store=str(folder / "log.db"))
    async with (
        open_log(settings) as log,
        open_model_registry(settings) as shelf,
        sandbox_pools.sandbox_pool(settings, is_unsandboxed=False) as pool,
        anyio.create_task_group() as group,
    ):
        records = log.store.records
        root = await ensure_first_key(records)
        assert root is not None
        shelf.put(MODEL, model)
        agents, environments = Agents(records), Environments(records)
        stores, seal = MemoryStores(records), AesSeal(b"k" * 32)

        async def store_name(tenant: str, store_id: str) -> MemoryStoreInfo:
            return MemoryStoreInfo(name=(await stores.get(tenant, store_id)).name)

        runner = Runner(folder / "workspaces", group, shelf=shelf, log=log)
        runner.toolbox_factory = toolbox_builder(settings, shelf, pool, AllowAll())
        dependencies = SessionDependencies(
            agents=agents,
            environments=environments,
            lookups=ResourceLookups(seal=seal, memory_store=store_name),
            wake_session=runner.wake,
        )
        sessions = Sessions(log, dependencies)
        tokens = WorkTokens(records, seal)
        queue = WorkQueue(
            records,
            environments,
            needs_worker=needs_worker(sessions),
            issue_token=tokens.secret,
            lease_times=leases or LeaseTimes(),
        )
        runner.queue = queue
        streams = EventStreams(log, LocalDeltas())
        api = Api(
            routes(log, sessions, agents, streams, queue),
            access_control=Authenticator(
                records, token_verifier=tokens, sessions=sessions.repository
            ),
        )
        async with http_server(api.application()) as url:
            try:
                yield Site(url, log, queue, root)
            finally:
                streams.close()
        group.cancel_scope.cancel()


async def hosted(
    client: AsyncAnthropic,
    words: str,
    *,
    tools: list[Any] | None = None,
    resources: Sequence[Any] = (),
    skills: Sequence[Any] = (),
) -> BetaManagedAgentsSession:
    """A session in a self-hosted environment of its own, with a first message."""
    made = await client.beta.agents.create(
        model=MODEL, name="helper", tools=tools or USUAL, skills=skills
    )
    environment = await client.beta.environments.create(
        name=f"for {made.id}", config={"type": "self_hosted"}
    )
    return await client.beta.sessions.create(
        agent=made.id,
        environment_id=environment.id,
        resources=resources,
        initial_events=[{"type": "user.message", "content": [{"type": "text", "text": words}]}],
    )
