"""How long sandboxes are kept for sessions that do not run."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from tests.abilities import require_network
from tests.session_e2e.session_setup import MODEL, Scene, at_work, begin

from mainspring.capabilities.providers.scripted import calls
from mainspring.capabilities.sandbox.keeper_process.keeper_connection import connect_to_keeper
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.config import Settings
from mainspring.core.content import TextBlock
from mainspring.core.events import Usage
from mainspring.core.model import Delta, Reply, Request, ToolInputDelta, ToolUse
from mainspring.core.ports import ExecRequest
from mainspring.runtime.session.session_paths import SessionPaths
from mainspring.wiring import sandboxes as sandbox_pools
from mainspring.wiring.sandbox_settings import read_environment, session_paths
from mainspring.wiring.sandboxes import MAX_IDLE, SandboxPool

SECONDS = 60
NETWORKED = {"networking": {"type": "limited", "allowed_hosts": ["example.com"]}}


@pytest.fixture
def settings(scene: Scene) -> Settings:
    return scene.settings()


@pytest.fixture
async def sandbox_pool(settings: Settings) -> AsyncGenerator[SandboxPool]:
    with anyio.fail_after(SECONDS):
        async with sandbox_pools.sandbox_pool(settings, most_idle=1) as opened:
            yield opened


class Sessions:
    def __init__(self, settings: Settings, sandbox_pool: SandboxPool) -> None:
        self.settings = settings
        self.sandbox_pool = sandbox_pool

    def places(self, name: str) -> SessionPaths:
        return session_paths(self.settings, Path(self.settings.folder), name)

    async def work(self, name: str, **sandbox: object) -> SandboxSession:
        """The hands of a session, after they have done something."""
        sandbox_session = await self.sandbox_pool.open_session(
            name, self.places(name), read_environment(sandbox)
        )
        ran = await sandbox_session.run(ExecRequest(key=f"{name}-work", argv=("true",)))
        assert ran.status == 0
        return sandbox_session

    async def is_kept(self, name: str) -> bool:
        talk = await connect_to_keeper(self.places(name).state)
        if talk is not None:
            await talk.aclose()
        return talk is not None


@pytest.fixture
def sessions(settings: Settings, sandbox_pool: SandboxPool) -> Sessions:
    return Sessions(settings, sandbox_pool)


async def are_only_kept(sessions: Sessions, *names: str, gone: tuple[str, ...] = ()) -> bool:
    """Whether these have their sandboxes, once those of the others have ended."""
    for name in gone:
        while await sessions.is_kept(name):  # noqa: ASYNC110 -- it is another process
            await anyio.sleep(0.01)
    return all([await sessions.is_kept(name) for name in names])


async def test_the_most_recently_released_idle_sandbox_is_kept_and_reused(sessions: Sessions):
    for name in ("a", "b"):
        await sessions.work(name)
    assert await are_only_kept(sessions, "a", "b")
    await sessions.sandbox_pool.release("b")
    await sessions.sandbox_pool.release("a")
    assert await are_only_kept(sessions, "a", gone=("b",))
    first = await sessions.work("a")
    await sessions.sandbox_pool.release("a")
    assert await sessions.work("a") is first


async def test_a_sandbox_in_use_is_kept_regardless_of_idle_ones(sessions: Sessions):
    await sessions.work("busy")
    for name in ("a", "b"):
        await sessions.work(name)
        await sessions.sandbox_pool.release(name)
    assert await are_only_kept(sessions, "busy", "b", gone=("a",))


async def test_a_session_whose_sandbox_was_closed_gets_a_new_one(sessions: Sessions):
    require_network()
    first = await sessions.work("a", **NETWORKED)
    for name in ("a", "b"):
        await sessions.work(name)
        await sessions.sandbox_pool.release(name)
    assert await are_only_kept(sessions, "b", gone=("a",))
    again = await sessions.work("a", **NETWORKED)
    assert again is not first
    ran = await again.run(ExecRequest(key="more", argv=("echo", "here")))
    assert ran.stdout.head == b"here\n"


async def test_services_end_with_the_sandbox_of_their_session(sessions: Sessions):
    session = await sessions.work("a")
    await session.sandbox_services.start("web", ExecRequest(key="web", argv=("sleep", "600")))
    for name in ("a", "b"):
        await sessions.work(name)
        await sessions.sandbox_pool.release(name)
    again = await sessions.work("a")
    assert await again.sandbox_services.output("web") is None


async def test_a_runtime_keeps_at_most_max_idle_sandboxes(scene: Scene, sessions: Sessions):
    async with scene.runtime() as runtime:
        ids: list[str] = []
        for _ in range(MAX_IDLE + 1):
            play = await begin(runtime, calls("bash", command="ls"))
            ids.append((await play.run()).session_id)
        assert await are_only_kept(sessions, *ids[1:], gone=(ids[0],))


async def test_closing_the_pool_closes_every_sandbox(settings: Settings):
    with anyio.fail_after(SECONDS):
        async with sandbox_pools.sandbox_pool(settings) as sandbox_pool:
            sessions = Sessions(settings, sandbox_pool)
            for name in ("a", "b"):
                await sessions.work(name)
            await sandbox_pool.release("a")
        assert await are_only_kept(sessions, gone=("a", "b"))


class WritesUntilModel:
    """Announces a call and writes at it until something is there."""

    def __init__(self, until: Callable[[], Awaitable[object]]) -> None:
        self._until = until

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        use = ToolUse(id="call", name="bash", input={"command": "echo here"})
        if len(request.messages) == 1:
            yield ToolInputDelta(id=use.id, name=use.name, json="")
            await self._until()
            yield Reply(content=(use,), usage=Usage(), reason="tool_use", model=MODEL)
        yield Reply(content=(TextBlock("done"),), usage=Usage(), reason="end_turn", model=MODEL)


async def test_the_sandbox_opens_while_the_model_writes_the_call(scene: Scene, sessions: Sessions):
    async with scene.runtime() as runtime:
        session = await runtime.start(at_work(), "do it")

        async def is_made() -> None:
            while not await sessions.is_kept(session.id):  # noqa: ASYNC110 -- another process
                await anyio.sleep(0.01)

        runtime.models.put(MODEL, WritesUntilModel(is_made))
        with anyio.fail_after(SECONDS):
            result = await session.run()
    assert result is not None
    assert result.ok
