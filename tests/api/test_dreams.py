"""`/v1/dreams` as the official SDK knows it: over memory stores and sessions, at most once."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import Tags, collect, ids, official_client

from mainspring.config import read_settings
from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.ids import new_id
from mainspring.core.sender import Sender
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route_table import all_routes
from mainspring.improve.dreams.dream_log import dream_session
from mainspring.log.session_lease import hold_session
from mainspring.log.verify import verify
from mainspring.service.dreams.dreams import TASK
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.service import Service
from mainspring.wiring.service_assembly import open_service

MODEL = "claude-sonnet-4-5"
BUDGET = {"type": "limit", "max_list_cost": {"amount": "100", "currency": "USD"}}
ANNA = Sender(kind="person", id="key_anna")


@dataclass
class World:
    service: Service
    url: str
    acme: AsyncAnthropic
    tenant: str = "acme"

    async def run(self, dream_id: str) -> None:
        """What a worker does with the job."""
        await self.service.dreams.run(Job(task=TASK, key=dream_id, tenant=self.tenant))

    async def session(self, *said: str, agent_id: str = "") -> str:
        agents = self.acme.beta.agents
        agent = await (
            agents.retrieve(agent_id) if agent_id else agents.create(name="helper", model=MODEL)
        )
        cloud = await self.acme.beta.environments.create(name=f"env{new_id('x')}")
        made = await self.acme.beta.sessions.create(agent=agent.id, environment_id=cloud.id)
        log = self.service.infrastructure.log
        for text in said:
            message = events.UserMessage(content=(TextBlock(text),))
            await log.submit(made.id, message, sender=ANNA)
        async with hold_session(log, made.id) as writer:
            await writer.fold_inbox()
        return made.id

    async def texts(self, store_id: str) -> dict[str, str]:
        pages = self.acme.beta.memory_stores.memories.list(store_id, view="full")
        listed: list[Any] = await collect(pages)
        return {item.path: item.content for item in listed}


@asynccontextmanager
async def open_world(folder: Path, *, tenant: str = "acme") -> AsyncGenerator[World]:
    settings = read_settings(
        store=str(folder / "mainspring.db"),
        environ={"MAINSPRING_VAULT": str(folder / "vault")},
        folder=folder,
    )
    async with open_service(settings) as service:
        api = Api(all_routes(service), access_control=Tags())
        async with (
            http_server(api.application()) as url,
            official_client(url, f"{tenant}:admin") as acme,
        ):
            yield World(service, url, acme, tenant)


def inputs(store_id: str, *sessions: str) -> list[Any]:
    return [
        {"type": "memory_store", "memory_store_id": store_id},
        {"type": "sessions", "session_ids": list(sessions)},
    ]


async def test_a_dream_writes_a_new_store_and_keeps_its_inputs_unchanged(tmp_path: Path):
    async with open_world(tmp_path) as world:
        dreams, stores = world.acme.beta.dreams, world.acme.beta.memory_stores
        store = await stores.create(name="notes")
        await stores.memories.create(store.id, path="/project_a.md", content="The port is 1.")
        session = await world.session("Always answer in French.")
        before = await world.texts(store.id)
        made = await dreams.create(inputs=inputs(store.id, session), model=MODEL)
        assert (made.status, made.outputs, made.session_id) == ("pending", [], None)
        assert made.model.id == MODEL
        await world.run(made.id)
        done = await dreams.retrieve(made.id)
        assert (done.status, done.error) == ("completed", None)
        assert done.session_id == dream_session(made.id)
        (output,) = done.outputs
        assert output.memory_store_id != store.id
        assert await world.texts(store.id) == before
        texts = await world.texts(output.memory_store_id)
        assert texts["/project_a.md"] == "The port is 1."
        assert any("Always answer in French." in text for text in texts.values())
        await world.run(made.id)
        assert await world.texts(output.memory_store_id) == texts
        log = world.service.infrastructure.log
        assert not (await verify(log, dream_session(made.id))).problems


async def test_a_dream_updates_its_store_and_excludes_a_concurrent_one(tmp_path: Path):
    async with open_world(tmp_path) as world:
        dreams, stores = world.acme.beta.dreams, world.acme.beta.memory_stores
        store = await stores.create(name="notes")
        session = await world.session("Remember that the staging host is blue.")
        behavior: Any = {"type": "update_existing", "memory_store_id": store.id}
        given: Any = {"inputs": inputs(store.id, session), "model": {"id": MODEL}}
        made = await dreams.create(**given, output_behavior=behavior)
        with pytest.raises(anthropic.ConflictError):
            await dreams.create(**given, output_behavior=behavior)
        await world.run(made.id)
        assert any(
            "staging host is blue" in text for text in (await world.texts(store.id)).values()
        )
        assert (await dreams.retrieve(made.id)).outputs[0].memory_store_id == store.id
        again = await dreams.create(**given, output_behavior=behavior)
        before = await world.texts(store.id)
        await world.run(again.id)
        assert await world.texts(store.id) == before


async def test_dreams_are_listed_canceled_and_archived(tmp_path: Path):
    async with open_world(tmp_path) as world:
        dreams, stores = world.acme.beta.dreams, world.acme.beta.memory_stores
        store = await stores.create(name="notes")
        session = await world.session("Always answer in French.")
        given: Any = {"inputs": inputs(store.id, session), "model": MODEL}
        made = [await dreams.create(**given) for _ in range(5)]
        canceled = await dreams.cancel(made[0].id)
        assert (canceled.status, canceled.ended_at is not None) == ("canceled", True)
        assert await dreams.cancel(made[0].id) == canceled
        await world.run(made[0].id)
        assert (await dreams.retrieve(made[0].id)).outputs == []
        with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
            await dreams.archive(made[1].id)
        await world.run(made[1].id)
        with pytest.raises(anthropic.BadRequestError, match="completed"):
            await dreams.cancel(made[1].id)
        archived = await dreams.archive(made[1].id)
        assert await dreams.archive(made[1].id) == archived
        everything = [item.id for item in reversed(made)]
        assert await ids(dreams.list(limit=2, include_archived=True)) == everything
        assert await ids(dreams.list()) == [item for item in everything if item != made[1].id]
        pending = [item.id for item in reversed(made[2:])]
        assert await ids(dreams.list(limit=1, statuses=["pending"])) == pending
        assert await ids(dreams.list(statuses=["canceled", "completed"])) == [made[0].id]
        assert await ids(dreams.list(created_at_gt=made[3].created_at)) == [made[4].id]
        async with official_client(world.url, "other:admin") as other:
            assert await ids(other.beta.dreams.list()) == []
            with pytest.raises(anthropic.NotFoundError):
                await other.beta.dreams.retrieve(made[0].id)


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": []},
        {"inputs": [{"type": "memory_store", "memory_store_id": "STORE"}]},
        {"inputs": inputs("STORE", "SESSION", "SESSION")},
        {"inputs": inputs("STORE", *(f"sesn_{n}" for n in range(101)))},
        {"inputs": inputs("STORE")},
        {"instructions": ""},
        {"instructions": "x" * 4_097},
        {"model": ""},
        {"model": {"id": MODEL, "speed": "fast"}},
        {"output_behavior": {"type": "update_existing", "memory_store_id": "memstore_other"}},
        {"output_behavior": {"type": "replace"}},
    ],
)
async def test_invalid_dreams_are_refused(tmp_path: Path, change: dict[str, Any]):
    async with open_world(tmp_path) as world:
        store = await world.acme.beta.memory_stores.create(name="notes")
        session = await world.session("hello")
        given: Any = {"inputs": inputs("STORE", "SESSION"), "model": MODEL, **change}
        named = str(given).replace("STORE", store.id).replace("SESSION", session)
        with pytest.raises((anthropic.BadRequestError, anthropic.NotFoundError)):
            await world.acme.beta.dreams.create(**eval(named))  # noqa: S307 (our own text)
        assert await ids(world.acme.beta.dreams.list()) == []


async def test_a_deployment_runs_a_dream_when_it_is_due(tmp_path: Path):
    async with open_world(tmp_path) as world:
        beta = world.acme.beta
        agent = await beta.agents.create(name="helper", model=MODEL)
        cloud = await beta.environments.create(name="cloud")
        store = await beta.memory_stores.create(name="notes")
        said: Any = [{"type": "user.message", "content": [{"type": "text", "text": "Dream."}]}]
        action = {"type": "dream", "memory_store_id": store.id, "model": MODEL}
        reflection = await beta.deployments.create(
            agent=agent.id,
            environment_id=cloud.id,
            name="daily reflection",
            initial_events=said,
            schedule={"type": "cron", "expression": "0 3 * * *", "timezone": "UTC"},
            extra_body={"action": action},
        )
        await world.session("Always answer in French.", agent_id=agent.id)
        early = await beta.deployments.run(reflection.id)
        assert early.error is not None
        assert "not due: 1 new" in early.error.message
        for _ in range(4):
            await world.session("hello", agent_id=agent.id)
        run = await beta.deployments.run(reflection.id)
        assert run.error is None
        (dream,) = await collect(beta.dreams.list())
        assert run.session_id == dream_session(dream.id)
        await world.run(dream.id)
        assert any("French" in text for text in (await world.texts(store.id)).values())
        again = await beta.deployments.run(reflection.id)
        assert again.error is not None


def write_suite(folder: Path) -> None:
    """A suite that passes as long as a session is shown the right day."""
    (folder / "agent.yaml").write_text("name: tested\nmodel: scripted:model.json\n")
    (folder / "model.json").write_text(json.dumps([{"steps": [{"says": "hello"}]}]))
    (folder / "evals").mkdir()
    shown = {"type": "trajectory", "in_context": ["We release on Thursdays"]}
    case = {"id": "day", "input": "On which day do we release?", "graders": [shown]}
    (folder / "evals/basics.yaml").write_text(json.dumps({"cases": [case]}))


async def test_a_dream_that_lowers_a_suite_score_writes_nothing(tmp_path: Path):
    write_suite(tmp_path)
    async with open_world(tmp_path, tenant="default") as world:
        dreams, stores = world.acme.beta.dreams, world.acme.beta.memory_stores
        store = await stores.create(name="notes")
        day = "---\ntype: project\ntrust: agent\n---\n\nWe release on Thursdays.\n"
        await stores.memories.create(store.id, path="/project_release.md", content=day)
        before = await world.texts(store.id)
        bad = await world.session("No, we release on Fridays.")
        good = await world.session("Remember that the staging host is blue.")
        update: Any = {"type": "update_existing", "memory_store_id": store.id}
        suite: Any = {"suite": "basics", "suite_budget": BUDGET}
        for behavior in ({"type": "create_new"}, update):
            made = await dreams.create(
                inputs=inputs(store.id, bad),
                model=MODEL,
                output_behavior=behavior,  # pyright: ignore[reportArgumentType] (either)
                extra_body=suite,
            )
            for _ in range(2):  # a worker that died
                await world.run(made.id)
            done = await dreams.retrieve(made.id)
            assert (done.status, done.outputs) == ("failed", [])
            assert done.error is not None
            assert done.error.type == "rolled_back"
            assert done.error.message.startswith("suite basics fell from 100% to 0%")
            assert await world.texts(store.id) == before
            assert [item.id for item in await collect(stores.list())] == [store.id]
        made = await dreams.create(
            inputs=inputs(store.id, good), model=MODEL, output_behavior=update, extra_body=suite
        )
        await world.run(made.id)
        done = await dreams.retrieve(made.id)
        assert done.status == "completed"
        score = done.to_dict()["score"]
        assert isinstance(score, dict)
        assert (score["before"], score["after"]) == (1.0, 1.0)
        assert any(
            "staging host is blue" in text for text in (await world.texts(store.id)).values()
        )


async def test_only_the_operator_can_test_dreams_with_suites(tmp_path: Path):
    write_suite(tmp_path)
    for tenant, suite, problem in (
        ("acme", "basics", "suites belong to the tenant default"),
        (
            "default",
            "../../etc",
            "no suite ../../etc in the folder of the service; its suites: basics",
        ),
    ):
        async with open_world(tmp_path, tenant=tenant) as world:
            store = await world.acme.beta.memory_stores.create(name="notes")
            session = await world.session("Hello.")
            with pytest.raises(anthropic.BadRequestError, match=problem):
                await world.acme.beta.dreams.create(
                    inputs=inputs(store.id, session), model=MODEL, extra_body={"suite": suite}
                )
