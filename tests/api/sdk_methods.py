"""Every method of the official SDK that concerns managed agents, called once, sync or async."""
# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# ruff: noqa: ANN401 (any method of the SDK, any answer)

import inspect
from contextlib import suppress
from functools import cached_property
from typing import Any

import anthropic
import anyio
from anthropic import BaseModel
from anthropic._resource import AsyncAPIResource, SyncAPIResource
from anthropic.types.beta import BetaManagedAgentsSession
from tests.abilities import session_folder

TOOLS = [
    {
        "type": "agent_toolset_20260401",
        "default_config": {"permission_policy": {"type": "always_allow"}},
    }
]
MANIFEST = b"---\nname: %s\ndescription: Fills in PDF forms.\n---\nCarefully.\n"
SECRET = {
    "type": "environment_variable",
    "secret_name": "TOKEN",
    "secret_value": "very-secret-value",
    "networking": {"type": "limited", "allowed_hosts": ["api.example.com"]},
}


def methods(client: anthropic.Anthropic | anthropic.AsyncAnthropic) -> set[str]:
    """As `sessions.events.send`, of everything below `client.beta`."""
    return set(_methods(client.beta, ""))


def _methods(resource: Any, path: str) -> list[str]:
    found: list[str] = []
    for name in dir(type(resource)):
        attribute = inspect.getattr_static(type(resource), name)
        if name.startswith(("_", "with_")):
            continue
        if isinstance(attribute, cached_property | property):
            inner = getattr(resource, name)
            if isinstance(inner, SyncAPIResource | AsyncAPIResource):
                found += _methods(inner, f"{path}{name}.")
        elif inspect.isfunction(attribute):
            found.append(f"{path}{name}")
    return found


class Calls:
    """Calls methods by name, and notes which, and what came back that the SDK does not know."""

    def __init__(self, client: anthropic.Anthropic | anthropic.AsyncAnthropic) -> None:
        self.client = client
        self.called: set[str] = set()
        self.unknown: set[str] = set()
        """Fields of answers that the SDK has no name for, as `BetaSession.x`."""

    async def __call__(self, name: str, /, *given: Any, **named: Any) -> Any:
        method: Any = self.client.beta
        for part in name.split("."):
            method = getattr(method, part)
        self.called.add(name)
        answer = method(*given, **named)
        if inspect.isawaitable(answer):
            answer = await answer
        self._note(answer)
        return answer

    async def refused(
        self, error: type[Exception], name: str, /, *given: Any, **named: Any
    ) -> None:
        try:
            await self(name, *given, **named)
        except error:
            return
        raise AssertionError(f"{name} was not refused")

    async def content(self, name: str, /, *given: Any, **named: Any) -> bytes:
        read = (await self(name, *given, **named)).read()
        return await read if inspect.isawaitable(read) else read

    async def upto_idle(
        self, name: str, /, *given: Any, then: Any = None, **named: Any
    ) -> list[Any]:
        """The events of a stream until its session is idle. `then` is done once it is open."""
        stream = await self(name, *given, **named)
        events: list[Any] = []
        if then is not None:
            await then()
        if isinstance(stream, anthropic.AsyncStream):
            async with stream:
                async for event in stream:
                    events.append(event)
                    if event.type.endswith("status_idle"):
                        break
        else:
            with stream:
                for event in stream:
                    events.append(event)
                    if event.type.endswith("status_idle"):
                        break
        self._note(events)
        return events

    def _note(self, answer: Any) -> None:
        if isinstance(answer, list | tuple):
            for item in answer:
                self._note(item)
        elif isinstance(answer, dict):
            self._note(list(answer.values()))
        elif isinstance(answer, BaseModel):
            extra = answer.model_extra or {}
            self.unknown |= {f"{type(answer).__name__}.{name}" for name in extra}
            self._note([getattr(answer, name) for name in type(answer).model_fields])


def said(text: str) -> dict[str, Any]:
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def skill(name: str, text: bytes = b"") -> list[Any]:
    return [(f"{name}/SKILL.md", MANIFEST % name.encode() + text, "text/markdown")]


async def exercise(call: Calls, name: str) -> None:
    """Call every method. `name` makes names that no other run has."""
    agent = await call("agents.create", name=name, model="claude-sonnet-4-5", tools=TOOLS)
    agent = await call("agents.update", agent.id, version=agent.version, description="Does it.")
    await call("agents.retrieve", agent.id)
    await call("agents.list", limit=1)
    await call("agents.versions.list", agent.id)
    cloud = await call("environments.create", name=f"{name}-cloud")
    await call("environments.retrieve", cloud.id)
    await call("environments.update", cloud.id, metadata={"a": "b"})
    await call("environments.list")
    await _files_and_skills(call, name)
    await _vaults(call, name)
    await _memory(call, name)
    session = await _sessions(call, agent.id, cloud.id)
    await _dreams(call, session.id, name)
    await _deployments(call, agent.id, cloud.id, name)
    await _work(call, agent.id, name)
    await call("sessions.archive", session.id)
    await call("sessions.delete", session.id)
    spare = await call("environments.create", name=f"{name}-spare")
    await call("environments.archive", spare.id)
    await call("environments.delete", spare.id)
    await call("agents.archive", agent.id)


async def _files_and_skills(call: Calls, name: str) -> None:
    file = await call("files.upload", file=("a.txt", b"hello", "text/plain"))
    await call("files.retrieve_metadata", file.id)
    await call("files.list", ids=[file.id])
    assert await call.content("files.download", file.id) == b"hello"
    await call("files.delete", file.id)
    made = await call("skills.create", files=skill(name))
    await call("skills.retrieve", made.id)
    await call("skills.list", source="custom")
    version = await call("skills.versions.create", made.id, files=skill(name, b"More."))
    await call("skills.versions.list", made.id)
    await call("skills.versions.retrieve", version.id, skill_id=made.id)
    assert await call.content("skills.versions.download", version.id, skill_id=made.id)
    await call("skills.versions.delete", version.id, skill_id=made.id)
    await call("skills.delete", made.id)


async def _vaults(call: Calls, name: str) -> None:
    vault = await call("vaults.create", display_name=name)
    await call("vaults.update", vault.id, metadata={"a": "b"})
    await call("vaults.retrieve", vault.id)
    await call("vaults.list")
    credential = await call("vaults.credentials.create", vault.id, auth=SECRET)
    where = {"vault_id": vault.id}
    await call("vaults.credentials.retrieve", credential.id, **where)
    await call("vaults.credentials.update", credential.id, display_name="token", **where)
    await call("vaults.credentials.list", vault.id)
    await call.refused(
        anthropic.BadRequestError, "vaults.credentials.mcp_oauth_validate", credential.id, **where
    )
    await call("vaults.credentials.archive", credential.id, **where)
    await call("vaults.credentials.delete", credential.id, **where)
    await call("vaults.archive", vault.id)
    await call("vaults.delete", vault.id)


async def _memory(call: Calls, name: str) -> None:
    store = await call("memory_stores.create", name=name)
    await call("memory_stores.update", store.id, description="Notes.")
    await call("memory_stores.retrieve", store.id)
    await call("memory_stores.list")
    where = {"memory_store_id": store.id}
    memory = await call("memory_stores.memories.create", store.id, path="/a.md", content="tea")
    first = memory.memory_version_id
    await call("memory_stores.memories.update", memory.id, content="coffee", **where)
    await call("memory_stores.memories.retrieve", memory.id, **where)
    await call("memory_stores.memories.list", store.id)
    await call("memory_stores.memory_versions.list", store.id)
    await call("memory_stores.memory_versions.retrieve", first, **where)
    await call("memory_stores.memory_versions.redact", first, **where)
    await call("memory_stores.memories.delete", memory.id, **where)
    await call("memory_stores.archive", store.id)
    await call("memory_stores.delete", store.id)


async def _dreams(call: Calls, session_id: str, name: str) -> None:
    store = await call("memory_stores.create", name=f"{name}-dreams")
    inputs = [
        {"type": "memory_store", "memory_store_id": store.id},
        {"type": "sessions", "session_ids": [session_id]},
    ]
    given = {"inputs": inputs, "model": "claude-sonnet-4-5", "instructions": "Only rules."}
    dream = await call("dreams.create", **given)
    with suppress(anthropic.BadRequestError):  # if it has ended already
        await call("dreams.cancel", dream.id)
    with anyio.fail_after(60):
        while await _is_dreaming(call, dream.id):  # noqa: ASYNC110 (a client polls)
            await anyio.sleep(0.05)
    await call("dreams.list", statuses=["completed", "canceled"], limit=1)
    await call("dreams.archive", dream.id)


async def _is_dreaming(call: Calls, dream_id: str) -> bool:
    return (await call("dreams.retrieve", dream_id)).status in ("pending", "running")


async def _sessions(call: Calls, agent_id: str, environment_id: str) -> BetaManagedAgentsSession:
    repository = {
        "type": "github_repository",
        "url": "https://github.com/owner/repository",
        "authorization_token": "secret-token",
    }
    begun = {"agent": agent_id, "environment_id": environment_id}
    held = await call("sessions.create", **begun, resources=[repository])
    [resource] = (await call("sessions.resources.list", held.id)).data
    of = {"session_id": held.id}
    await call("sessions.resources.update", resource.id, authorization_token="other-token", **of)
    file = await call("files.upload", file=("b.txt", b"hello", "text/plain"))
    added = await call("sessions.resources.add", held.id, type="file", file_id=file.id)
    await call("sessions.resources.retrieve", added.id, **of)
    await call("sessions.resources.delete", added.id, **of)

    session = await call("sessions.create", **begun, title="A session")
    await call("sessions.update", session.id, title="Another title")

    async def send() -> None:
        script = f'call bash {{"command": "echo hi > {session_folder()}/outputs/a"}}\nsay Done.'
        await call("sessions.events.send", session.id, events=[said(script)])

    deltas = ["agent.message"]
    await call.upto_idle("sessions.events.stream", session.id, then=send, event_deltas=deltas)
    await call("sessions.events.list", session.id, limit=100)
    await call("sessions.retrieve", session.id)
    await call("sessions.list", limit=5)
    [thread] = (await call("sessions.threads.list", session.id)).data
    of = {"session_id": session.id}
    await call("sessions.threads.retrieve", thread.id, **of)
    await call("sessions.threads.events.list", thread.id, **of)

    async def again() -> None:
        await call("sessions.events.send", session.id, events=[said("say Again.")])

    await call.upto_idle("sessions.threads.events.stream", thread.id, then=again, **of)
    await call.refused(anthropic.BadRequestError, "sessions.threads.archive", thread.id, **of)
    return session


async def _deployments(call: Calls, agent_id: str, environment_id: str, name: str) -> None:
    made = await call(
        "deployments.create",
        name=name,
        agent=agent_id,
        environment_id=environment_id,
        initial_events=[said("say good night")],
        schedule={"type": "cron", "expression": "0 3 * * *", "timezone": "Europe/Berlin"},
    )
    await call("deployments.update", made.id, description="Every night.")
    await call("deployments.retrieve", made.id)
    await call("deployments.list", agent_id=agent_id)
    run = await call("deployments.run", made.id)
    await call("deployment_runs.retrieve", run.id)
    await call("deployment_runs.list", deployment_id=made.id)
    await call("deployments.pause", made.id)
    await call("deployments.unpause", made.id)
    await call("deployments.archive", made.id)


async def _work(call: Calls, agent_id: str, name: str) -> None:
    environment = await call(
        "environments.create", name=f"{name}-lab", config={"type": "self_hosted"}
    )
    session = await call("sessions.create", agent=agent_id, environment_id=environment.id)

    async def send() -> None:
        script = 'call bash {"command": "hostname"}\nsay Done.'
        await call("sessions.events.send", session.id, events=[said(script)])

    await call.upto_idle("sessions.events.stream", session.id, then=send)
    where = {"environment_id": environment.id}
    item = await call("environments.work.poll", environment.id)
    await call("environments.work.ack", item.id, **where)
    await call("environments.work.heartbeat", item.id, **where)
    await call("environments.work.update", item.id, metadata={"a": "b"}, **where)
    await call("environments.work.retrieve", item.id, **where)
    await call("environments.work.list", environment.id)
    await call("environments.work.stats", environment.id)
    await call("environments.work.stop", item.id, force=True, **where)
