"""The whole API over one SQLite file, with the real door, and one of each thing for two tenants."""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from mainspring.config import read_settings
from mainspring.core import clock, ids
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.request_observers import AuditObserver
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.route_table import all_routes
from mainspring.edges.api.routes.operate.health import HealthRoutes, MetricsRoutes
from mainspring.edges.dashboard.sign_in import CookieAccess
from mainspring.service.access.api_keys import CreateKey, Keys, ensure_first_key
from mainspring.service.access.audit import Audit
from mainspring.service.access.principal import ROLES, Principal, Role
from mainspring.service.access.rate_limits import Rate
from mainspring.service.access.tenants import CreateTenant, Tenants
from mainspring.service.approvals.approval_record import Approval, MayAnswer
from mainspring.service.authorization.authentication import Authenticator, RateLimits
from mainspring.service.evals.alarms import AlarmSubject
from mainspring.service.jobs.parking import KIND as PARKED
from mainspring.service.jobs.parking import ParkedSession
from mainspring.service.service import Service
from mainspring.service.storage.repository import Repository
from mainspring.service.telemetry.health import Health
from mainspring.service.telemetry.metrics import Metrics
from mainspring.wiring.service_assembly import open_service

TENANTS = ("acme", "rival")
WORKFLOW = """\
name: look
description: Look around.
nodes:
  - {id: look, bash: ls}
"""
MANIFEST = b"---\nname: pdf-forms\ndescription: Fills in PDF forms.\n---\nCarefully.\n"
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:  # noqa: ANN401 (whatever came)
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Whole:
    url: str
    service: Service
    routes: Sequence[Route]
    keys: Mapping[tuple[str, Role], str]
    root: str
    """The key of the platform's administrator."""
    http: aiohttp.ClientSession
    ids: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Of each tenant, by the names that paths have for them."""

    async def ask(
        self,
        method: str,
        path: str,
        *,
        key: str | None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """`body`: JSON, or a form with files."""
        sent = {**(headers or {}), **({} if key is None else {"x-api-key": key})}
        content: dict[str, Any] = (
            {"data": body} if isinstance(body, aiohttp.FormData) else {"json": body}
        )
        async with self.http.request(method, path, headers=sent, **content) as response:
            return Answer(response.status, await response.text(errors="replace"), response.headers)

    async def make(self, tenant: str, path: str, body: object) -> Any:  # noqa: ANN401 (JSON)
        answer = await self.ask("POST", path, key=self.keys[tenant, "admin"], body=body)
        assert answer.status == 200, (path, answer.body)
        return answer.json


def parameters(route: Route) -> list[str]:
    return _PARAMETER.findall(route.path)


def filled(route: Route, current: Mapping[str, str]) -> str:
    """Its path with these ids; a name that nobody has made a thing for is a `KeyError`."""
    return _PARAMETER.sub(lambda found: current[found[1]], route.path)


def skill_form() -> aiohttp.FormData:
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("files[]", MANIFEST, filename="pdf-forms/SKILL.md")
    return form


@asynccontextmanager
async def whole(folder: Path, *, is_audited: bool = False) -> AsyncGenerator[Whole]:
    settings = read_settings(
        store=str(folder / "mainspring.db"), environ={"MAINSPRING_VAULT": str(folder / "vault")}
    )
    async with open_service(settings) as service:
        records = service.infrastructure.store.records
        root = await ensure_first_key(records)
        assert root is not None
        for tenant in TENANTS:
            await Tenants(records).create(CreateTenant(id=tenant))
        keys: dict[tuple[str, Role], str] = {
            (t, r): await _key(service, t, r) for t in TENANTS for r in ROLES
        }
        routes = all_routes(
            service,
            *routes_of(HealthRoutes(Health({}))),
            *routes_of(MetricsRoutes(Metrics(version="1"), _looked)),
        )
        door = Authenticator(
            records,
            rate_limits=RateLimits(key=Rate(1_000_000), tenant=Rate(1_000_000)),
            sessions=service.sessions.sessions.repository,
        )
        observers = [AuditObserver(Audit(records))] if is_audited else []
        async with (
            http_server(
                Api(
                    routes,
                    access_control=CookieAccess(door, service.access.browser_sessions),
                    request_observers=observers,
                    repeated=service.access.repeated,
                ).application()
            ) as url,
            aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=60)) as http,
        ):
            made = Whole(url, service, routes, keys, root, http)
            for tenant in TENANTS:
                made.ids[tenant] = await one_of_each(made, tenant)
            yield made


async def _looked() -> None:
    pass


async def _key(service: Service, tenant: str, role: Role) -> str:
    who = Principal(tenant=tenant, key_id="cli", role="admin", name="olga")
    made = await Keys(service.infrastructure.store.records).create(
        who, CreateKey(name=role, role=role)
    )
    return made.key


async def one_of_each(api: Whole, tenant: str) -> dict[str, str]:
    async def make(path: str, /, **body: object) -> Any:  # noqa: ANN401 (JSON)
        return await api.make(tenant, path, body)

    agent = await make("/v1/agents", name="helper", model="claude-opus-5-5")
    cloud = await make("/v1/environments", name="ci")
    environment = await make("/v1/environments", name="lab", config={"type": "self_hosted"})
    file = aiohttp.FormData()
    file.add_field("file", b"a,b\n1,2\n", filename="rows.csv")
    uploaded = await api.make(tenant, "/v1/files", file)
    skill = await api.make(tenant, "/v1/skills", skill_form())
    store = await make("/v1/memory_stores", name="notes")
    memory = await make(f"/v1/memory_stores/{store['id']}/memories", path="/a.md", content="tea")
    vault = await make("/v1/vaults", display_name="theirs")
    secret = {
        "type": "environment_variable",
        "secret_name": "API_KEY",
        "secret_value": "a-secret-value",
        "networking": {"type": "unrestricted"},
    }
    credential = await make(f"/v1/vaults/{vault['id']}/credentials", auth=secret)
    session = await make(
        "/v1/sessions",
        agent=agent["id"],
        environment_id=cloud["id"],
        resources=[{"type": "file", "file_id": uploaded["id"]}],
    )
    [thread] = (await _get(api, tenant, f"/v1/sessions/{session['id']}/threads"))["data"]
    said = [{"type": "user.message", "content": [{"type": "text", "text": "Scan."}]}]
    begun = {"agent": agent["id"], "environment_id": cloud["id"]}
    deployment = await make("/v1/deployments", **begun, name="weekly", initial_events=said)
    run = await make(f"/v1/deployments/{deployment['id']}/run")
    webhook = await make(
        "/v1/mainspring/webhooks",
        url="https://hooks.example.com/in",
        event_types=["session.created"],
    )
    delivery = await make(f"/v1/mainspring/webhooks/{webhook['id']}/ping")
    trigger = await make(
        "/v1/mainspring/triggers",
        **begun,
        name="issues",
        scheme={"type": "standard_webhooks"},
        message="Look at this.",
    )
    inputs = [
        {"type": "memory_store", "memory_store_id": store["id"]},
        {"type": "sessions", "session_ids": [session["id"]]},
    ]
    dream = await make("/v1/dreams", inputs=inputs, model="claude-opus-5-5")
    await api.service.evals.alarms.set(tenant, AlarmSubject(type="slo", name="helper"), "too slow")
    [alarm] = (await _get(api, tenant, "/v1/mainspring/alarms"))["data"]
    key = await make("/v1/mainspring/keys", name="another")
    workflow = await make("/v1/mainspring/workflows", files={"workflows/look.yaml": WORKFLOW})
    workflow_run = await make("/v1/mainspring/workflow_runs", workflow="look", **begun)
    await _park(api, tenant, session["id"])
    work = f"/v1/environments/{environment['id']}/work"
    elsewhere = await make("/v1/sessions", agent=agent["id"], environment_id=environment["id"])
    await api.service.sessions.work.offer(tenant, environment["id"], elsewhere["id"])
    offered, *_ = (await _get(api, tenant, work))["data"]
    approval = await _ask(api, tenant, session["id"], thread["id"], agent["id"])
    return {
        "agent_id": agent["id"],
        "environment_id": environment["id"],
        "file_id": uploaded["id"],
        "skill_id": skill["id"],
        "version": skill["latest_version_id"],
        "memory_store_id": store["id"],
        "memory_id": memory["id"],
        "memory_version_id": memory["memory_version_id"],
        "vault_id": vault["id"],
        "credential_id": credential["id"],
        "session_id": session["id"],
        "thread_id": thread["id"],
        "resource_id": session["resources"][0]["id"],
        "dream_id": dream["id"],
        "alarm_id": alarm["id"],
        "campaign_id": ids.new_id("camp"),  # campaigns belong to the tenant of the folder
        "eval_run_id": ids.new_id(ids.SESSION),  # so do eval runs
        "deployment_id": deployment["id"],
        "deployment_run_id": run["id"],
        "webhook_id": webhook["id"],
        "delivery_id": delivery["id"],
        "trigger_id": trigger["id"],
        "key_id": key["id"],
        "workflow_id": workflow["id"],
        "workflow_run_id": workflow_run["id"],
        "tenant_id": tenant,
        "work_id": offered["id"],
        "approval_id": approval.id,
    }


async def _get(api: Whole, tenant: str, path: str) -> Any:  # noqa: ANN401 (JSON)
    return (await api.ask("GET", path, key=api.keys[tenant, "admin"])).json


async def _ask(api: Whole, tenant: str, session_id: str, thread_id: str, agent_id: str) -> Approval:
    return await api.service.sessions.approvals.keeper.repository.put(
        tenant,
        Approval(
            id=ids.new_id("appr"),
            session_id=session_id,
            session_thread_id=thread_id,
            agent_id=agent_id,
            agent_name="helper",
            tool_use_id="sevt_1",
            name="bash",
            input={"command": "ls"},
            preview=None,
            is_cut=False,
            reason=None,
            asked=1,
            asked_at=clock.now(),
            may_answer=MayAnswer(role="user", four_eyes=False),
        ),
    )


async def _park(api: Whole, tenant: str, session_id: str) -> None:
    repository = Repository(api.service.infrastructure.store.records, PARKED, ParkedSession)
    now = clock.now()
    parked = ParkedSession(id=session_id, reason="broken", failures=5, parked_at=now, is_told=False)
    await repository.put(tenant, parked)
