"""Sessions whose calls wait for people, the approvals of them, and a clock that can be put on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
from anthropic import AsyncAnthropic
from tests.api.guarded_api import Http
from tests.api.sessions_api import AgentTags, SessionsApi, message, service, session
from tests.service.schedule_setup import Jobs

from mainspring.core import clock
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.routes.run.approvals import ApprovalRoutes
from mainspring.log.records import Put, RecordChange, RecordRow
from mainspring.service.access.principal import Principal, Role
from mainspring.service.approvals.approvals import Approvals
from mainspring.service.authorization.authentication import AuthenticationResult, RequestCredentials
from mainspring.service.storage.repository import Notification
from mainspring.testing import Model, Scripted, calls, says

PATH = "/v1/mainspring/approvals"


def erasing(*files: str) -> Scripted:
    """Asks for all of them at once, and then says that it is done."""
    asked = calls("erase", x=files[0])
    for file in files[1:]:
        asked += calls("erase", x=file)
    return Scripted(asked, otherwise=says("Done."))


def person(name: str = "olga", role: Role = "user") -> Principal:
    return Principal(tenant="acme", key_id=f"key_{name}", role=role, name=name)


class NamedTags(AgentTags):
    """As `AgentTags`; the header `x-name` says whose key it is, `x-mainspring-agent` which agent
    has it."""

    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        admitted = await super().admit(credentials, route)
        who, name = admitted.who, credentials.headers.get("x-name", "olga")
        return AuthenticationResult(
            who=Principal(
                tenant=who.tenant,
                key_id=f"key_{name}",
                role=who.role,
                name=name,
                agent_id=who.agent_id,
                acting_agent=credentials.headers.get("x-mainspring-agent"),
            )
        )


@dataclass
class Later:
    """Now, and what a test has put on."""

    passed: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return clock.now() + self.passed

    def put_on(self, **span: float) -> None:
        self.passed += timedelta(**span)


@dataclass
class Notices:
    """An outbox that keeps what it is told, with what it was told of or not at all."""

    told_of: list[Notification] = field(default_factory=list[Notification])
    _written: dict[str, Notification] = field(default_factory=dict[str, Notification])

    async def prepare_changes(self, *notices: Notification) -> list[RecordChange]:
        changes: list[RecordChange] = []
        for notice in notices:
            id_ = f"told_{len(self._written)}"
            self._written[id_] = notice
            record = RecordRow(
                tenant=notice.tenant, kind="told", id=id_, created=1, updated=1, body=b"{}"
            )
            changes.append(Put(row=record))
        return changes

    async def enqueue_deliveries(self, changes: Any) -> None:  # noqa: ANN401 (any changes)
        self.told_of += [self._written[change.row.id] for change in changes]


@dataclass(frozen=True, slots=True)
class Office:
    home: SessionsApi
    approvals: Approvals
    jobs: Jobs
    later: Later
    notices: Notices
    url: str

    @asynccontextmanager
    async def http(self, key: str = "acme:user", **headers: str) -> AsyncGenerator[Http]:
        given = {"x-api-key": key, **{name.replace("_", "-"): it for name, it in headers.items()}}
        async with aiohttp.ClientSession(self.url, headers=given) as opened:
            yield Http(opened)

    async def asked(self, client: AsyncAnthropic, **fields: object) -> str:
        """A session that has come to where it waits, or to its end."""
        made = await session(client, initial_events=[message("clean up")], **fields)
        await self.settled(made.id)
        return made.id

    async def settled(self, session_id: str) -> None:
        await self.home.worker.settled()
        await self.approvals.keeper.catch_up("acme", session_id)

    async def attend(self) -> int:
        """Do what is due; how many jobs that were."""
        due = self.jobs.take("approval", self.later())
        for job in due:
            await self.approvals.attend(job)
        return len(due)


@asynccontextmanager
async def session_context(folder: Path, model: Model) -> AsyncGenerator[Office]:
    async with service(folder, model) as home:
        jobs, later, notices = Jobs(), Later(), Notices()
        approvals = Approvals(
            home.log,
            wake_session=home.worker.wake,
            put=jobs.put,
            notification_writer=notices,
            sessions=home.sessions,
            clock=later,
        )
        api = Api(routes_of(ApprovalRoutes(approvals)), access_control=NamedTags())
        async with http_server(api.application()) as url:
            yield Office(home, approvals, jobs, later, notices, url)
