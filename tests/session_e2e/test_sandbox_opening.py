"""When the sandbox of a session is opened: by the first program, once, and never to be closed."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import anyio
import pytest
from tests.abilities import require_network
from tests.session_e2e.session_setup import Scene

from mainspring.capabilities.providers.scripted import calls, says
from mainspring.capabilities.sandbox.sandbox_session import OpenedSandbox, SandboxOpening
from mainspring.config import Settings
from mainspring.core.errors import SandboxFailed
from mainspring.core.events import SandboxOpened, ToolCallStarted
from mainspring.core.ports import ExecRequest
from mainspring.wiring import sandboxes as sandbox_pools
from mainspring.wiring.sandbox_settings import read_environment, session_paths
from mainspring.wiring.sandboxes import SandboxPool

SECONDS = 60
NETWORKED = {"networking": {"type": "limited", "allowed_hosts": ["example.com"]}}


@pytest.fixture
def settings(scene: Scene) -> Settings:
    return scene.settings()


@pytest.fixture
async def pool(settings: Settings) -> AsyncGenerator[SandboxPool]:
    with anyio.fail_after(SECONDS):
        async with sandbox_pools.sandbox_pool(settings) as opened:
            yield opened


async def test_a_session_that_runs_no_program_opens_no_sandbox(scene: Scene, settings: Settings):
    async with scene.play(says("hi")) as play:
        await play.run()
        [fact] = await play.events(SandboxOpened)  # says what programs would run in
        paths = session_paths(settings, scene.workspace, play.session.id)
    assert fact.workspace == str(scene.workspace)
    assert not paths.state.exists()


async def test_the_log_names_the_sandbox_before_the_first_program(scene: Scene):
    async with scene.play(
        calls("bash", command="echo 1"), says("one"), calls("bash", command="echo 2")
    ) as play:
        await play.run()
        await play.run("again")
        [fact] = await play.events(SandboxOpened)
        for started in await play.events(ToolCallStarted):
            assert started.sandbox == f"{fact.backend}/{fact.level}/{fact.flags_hash}"


async def test_a_sandbox_that_cannot_be_opened_fails_the_call_and_the_next_call_retries(
    settings: Settings, pool: SandboxPool, scene: Scene
):
    require_network()
    paths = session_paths(settings, scene.workspace, "s1")
    vault = scene.write(settings.vault, "this is no vault")
    sandbox = await pool.open_session("s1", paths, read_environment(NETWORKED))
    program = ExecRequest(key="one", argv=("echo", "here"))
    with pytest.raises(SandboxFailed, match=r"the sandbox cannot be opened: .*vault"):
        await sandbox.run(program)
    vault.unlink()
    assert (await sandbox.run(program)).stdout.head == b"here\n"


async def test_a_sandbox_left_by_an_earlier_process_is_reopened_and_its_services_end(
    settings: Settings, pool: SandboxPool, scene: Scene
):
    """Its services end with the session, although the session uses none."""
    paths = session_paths(settings, scene.workspace, "s1")
    environment = read_environment({})
    before = await pool.open_session("s1", paths, environment)
    await before.sandbox_services.start("web", ExecRequest(key="w", argv=("sleep", "600")))
    async with sandbox_pools.sandbox_pool(settings) as later:
        await later.open_session("s1", paths, environment)
    assert await before.sandbox_services.output("web") is None


class Openings:
    """Counts openings, and how many of them were undone."""

    def __init__(self, opened: OpenedSandbox) -> None:
        self._opened = opened
        self.begun = self.undone = 0
        self.go_on = anyio.Event()

    async def open(self, cleanup: AsyncExitStack) -> OpenedSandbox:
        self.begun += 1
        cleanup.callback(self._undo)
        await self.go_on.wait()
        return self._opened

    def _undo(self) -> None:
        self.undone += 1


@pytest.fixture
async def openings(settings: Settings, pool: SandboxPool, scene: Scene) -> Openings:
    paths = session_paths(settings, scene.workspace, "s1")
    sandbox = await pool.open_session("s1", paths, read_environment({}))
    return Openings(await sandbox.open())


async def test_concurrent_calls_open_one_sandbox(openings: Openings):
    opening = SandboxOpening(openings.open)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as together:
            for _ in range(3):
                together.start_soon(opening)
            openings.go_on.set()
    assert openings.begun == 1
    await opening.close()
    assert openings.undone == 1
    with pytest.raises(SandboxFailed, match="closed"):
        await opening()


async def test_an_interrupted_opening_leaves_nothing_behind(openings: Openings):
    opening = SandboxOpening(openings.open)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as interrupted:
            interrupted.start_soon(opening)
            while not openings.begun:
                await anyio.lowlevel.checkpoint()
            interrupted.cancel_scope.cancel()
        assert openings.undone == 1
        openings.go_on.set()
        await opening()
    assert (openings.begun, openings.undone) == (2, 1)


async def test_closing_an_unopened_sandbox_opens_nothing(openings: Openings):
    await SandboxOpening(openings.open).close()
    assert openings.begun == 0
