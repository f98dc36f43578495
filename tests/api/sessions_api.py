"""Sessions on loopback with a worker in the same process: a real runtime, a scripted model."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaManagedAgentsSession
from anthropic.types.beta.sessions import (
    BetaManagedAgentsSendSessionEvents,
    BetaManagedAgentsSessionStatusIdleEvent,
)
from anyio.abc import TaskGroup
from tests.api.agents_api import CUSTOM, MODEL
from tests.api.api_server import Tags, official_client
from tests.harness.session_setup import echo

from mainspring import Agent, Runtime, open_runtime
from mainspring.core.errors import NotFound
from mainspring.core.tool import Traits
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.routes.define.agents import AgentRoutes
from mainspring.edges.api.routes.define.environments import EnvironmentRoutes
from mainspring.edges.api.routes.run.events import EventRoutes
from mainspring.edges.api.routes.run.resources import ResourceRoutes
from mainspring.edges.api.routes.run.sessions import SessionRoutes
from mainspring.edges.api.routes.run.threads import ThreadRoutes
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.session import Session
from mainspring.service.approvals.approval_policy import AnswerPermission
from mainspring.service.authorization.authentication import AuthenticationResult, RequestCredentials
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.environments import Environments
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_pages import EventPages
from mainspring.service.sessions.resource_types import FileContent, MemoryStoreInfo, ResourceLookups
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_resources import SessionResources
from mainspring.service.sessions.session_threads import Threads
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.repository import Notification
from mainspring.testing import Model
from mainspring.tools import ToolSpec

RUNNER = Agent(
    name="helper",
    tools=[echo("look"), echo("erase", Traits(needs_person=True))],
    client_tools=[ToolSpec(name="ask_owner", description="Ask.", input_schema={"type": "object"})],
)
FILES = {
    ("acme", "file_text"): FileContent(content=b"Rows and rows.", media_type="text/plain"),
    ("acme", "file_png"): FileContent(content=b"\x89PNG", media_type="image/png"),
}


class Mirror:
    """A seal that anybody opens: it shows that something was sealed, and for what."""

    def seal(self, plain: bytes, context: str) -> bytes:
        return context.encode() + b"|" + plain[::-1]

    def unseal(self, sealed: bytes, context: str) -> bytes:
        return sealed.removeprefix(context.encode() + b"|")[::-1]


async def _file(tenant: str, file_id: str) -> FileContent:
    if (tenant, file_id) not in FILES:
        raise NotFound("file", file_id)
    return FILES[tenant, file_id]


async def _vault(tenant: str, vault_id: str) -> None:
    if (tenant, vault_id) != ("acme", "vlt_1"):
        raise NotFound("vault", vault_id)


async def _store(tenant: str, store_id: str) -> MemoryStoreInfo:
    if (tenant, store_id) != ("acme", "memstore_1"):
        raise NotFound("memory_store", store_id)
    return MemoryStoreInfo(name="User Preferences", description="what they like")


class AgentTags(Tags):
    """As `Tags`, with a third part for a key of one agent: `tenant:role:agent_id`."""

    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        bearer = credentials.headers.get("authorization", "").removeprefix("Bearer ")
        key, _, agent_id = (credentials.headers.get("x-api-key") or bearer).rpartition(":")
        if not agent_id.startswith("agent_"):
            return await super().admit(credentials, route)
        inner = RequestCredentials(
            headers={**credentials.headers, "x-api-key": key}, path=credentials.path
        )
        admitted = await super().admit(inner, route)
        who = admitted.who
        return AuthenticationResult(
            who=type(who)(
                tenant=who.tenant, key_id="key_a", role=who.role, name="a", agent_id=agent_id
            )
        )


@dataclass(slots=True)
class Worker:
    """Runs what is woken, one run a session at a time."""

    runtime: Runtime
    group: TaskGroup
    busy: int = 0
    still: anyio.Event = field(default_factory=anyio.Event)
    locks: dict[str, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))
    is_asleep: bool = False

    async def wake(self, _tenant: str, session: SessionRecord) -> None:
        self.run(session.id)

    def run(self, session_id: str) -> None:
        if self.is_asleep:
            return
        if self.busy == 0:
            self.still = anyio.Event()
        self.busy += 1
        self.group.start_soon(self._run, session_id)

    async def _run(self, session_id: str) -> None:
        try:
            async with self.locks[session_id]:
                await Session(self.runtime, RUNNER, session_id).run()
        finally:
            self.busy -= 1
            if self.busy == 0:
                self.still.set()

    async def settled(self) -> None:
        with anyio.fail_after(60):
            while self.busy:
                await self.still.wait()


@dataclass(frozen=True, slots=True)
class SessionsApi:
    url: str
    log: SessionLog
    sessions: Sessions
    worker: Worker
    notices: list[Notification]

    def client(self, key: str = "acme:admin") -> AsyncAnthropic:
        return official_client(self.url, key)

    async def until(self, session_id: str, kind: str) -> None:
        """Wait for an event of this kind."""
        with anyio.fail_after(60):
            async for _ in self.log.follow(session_id, types=[kind]):
                return


def routes(log: SessionLog, sessions: Sessions, agents: Agents) -> tuple[Route, ...]:
    pages = EventPages(log)
    return (
        *routes_of(AgentRoutes(agents)),
        *routes_of(EnvironmentRoutes(sessions.dependencies.environments)),
        *routes_of(SessionRoutes(sessions)),
        *routes_of(
            EventRoutes(sessions, EventSender(sessions, AnswerPermission(log.store.records)), pages)
        ),
        *routes_of(ThreadRoutes(sessions, Threads(sessions), pages)),
        *routes_of(ResourceRoutes(SessionResources(sessions))),
    )


@asynccontextmanager
async def service(folder: Path, model: Model) -> AsyncGenerator[SessionsApi]:
    async with (
        open_runtime(store=str(folder / "log.db")) as runtime,
        anyio.create_task_group() as group,
    ):
        runtime.models.put(RUNNER.model, model)
        worker = Worker(runtime, group)
        records = runtime.log.store.records
        notices: list[Notification] = []

        async def notify(notice: Notification) -> None:
            notices.append(notice)

        agents = Agents(records)
        lookups = ResourceLookups(
            seal=Mirror(),
            file_content=_file,
            check_file=_file,
            check_vault=_vault,
            memory_store=_store,
            is_priced=lambda model: model != "free-model",
        )
        dependencies = SessionDependencies(
            agents=agents,
            environments=Environments(records),
            lookups=lookups,
            wake_session=worker.wake,
            notify=notify,
        )
        sessions = Sessions(runtime.log, dependencies)
        api = Api(routes(runtime.log, sessions, agents), access_control=AgentTags())
        async with http_server(api.application()) as url:
            yield SessionsApi(url, runtime.log, sessions, worker, notices)
        group.cancel_scope.cancel()


async def agent_id(client: AsyncAnthropic, **fields: object) -> str:
    asked: dict[str, Any] = {"model": MODEL, "name": "helper", "tools": [CUSTOM], **fields}
    return (await client.beta.agents.create(**asked)).id


async def environment_id(client: AsyncAnthropic, name: str = "ci", **fields: object) -> str:
    asked: dict[str, Any] = {"name": name, **fields}
    return (await client.beta.environments.create(**asked)).id


async def session(client: AsyncAnthropic, **fields: object) -> BetaManagedAgentsSession:
    """A session, of an agent and in an environment of its own unless told otherwise."""
    asked: dict[str, Any] = dict(fields)
    if "agent" not in asked:
        asked["agent"] = await agent_id(client)
    if "environment_id" not in asked:
        asked["environment_id"] = await environment_id(client, name=f"for {asked['agent']}")
    return await client.beta.sessions.create(**asked)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def message(words: str) -> Any:  # noqa: ANN401 (one of the SDK's many params)
    return {"type": "user.message", "content": [text(words)]}


def confirmation(call_id: str, result: str = "allow", **fields: str) -> Any:  # noqa: ANN401 (as above)
    return {"type": "user.tool_confirmation", "tool_use_id": call_id, "result": result, **fields}


async def send(
    client: AsyncAnthropic,
    session_id: str,
    *events: Any,  # noqa: ANN401 (as above)
) -> BetaManagedAgentsSendSessionEvents:
    return await client.beta.sessions.events.send(session_id, events=list(events))


async def kinds(client: AsyncAnthropic, session_id: str, **asked: object) -> list[str]:
    filters: dict[str, Any] = asked
    return [event.type async for event in client.beta.sessions.events.list(session_id, **filters)]


async def idles(
    client: AsyncAnthropic, session_id: str
) -> list[BetaManagedAgentsSessionStatusIdleEvent]:
    return [
        e
        async for e in client.beta.sessions.events.list(session_id, types=["session.status_idle"])
        if e.type == "session.status_idle"
    ]


async def waiting(client: AsyncAnthropic, session_id: str) -> list[str]:
    last = (await idles(client, session_id))[-1].stop_reason
    return last.event_ids if last.type == "requires_action" else []
