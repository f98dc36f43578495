"""The real command in a process of its own, and a store with a small history for it to read."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from tests import fork_server
from tests.cli.terminal import Chat, Terminal, at_terminal
from tests.cli.upstream import Upstream, serving
from tests.environ import clean_environ
from tests.fork_server import Run
from tests.keys import KEY, install

from mainspring.core.content import TextBlock
from mainspring.core.events import (
    AgentMessage,
    AgentToolResult,
    AgentToolUse,
    SessionCreated,
    StatusIdle,
    StopReason,
    UserMessage,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite


@pytest.fixture
def environ(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Ours, without what would change what is printed or known."""
    home = tmp_path_factory.mktemp("home")
    install(home)
    monkeypatch.setenv("HOME", str(home))  # what this process does belongs to the same installation
    own = {"HOME": str(home), "TZ": "UTC", "TERM": "xterm-256color"}
    return {**clean_environ("NO_COLOR", "FORCE_COLOR", "COLUMNS"), **own}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the command is run; its store is the usual one below."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def store(place: Path) -> Path:
    return place / ".mainspring" / "mainspring.db"


@pytest.fixture
def mainspring(place: Path, environ: dict[str, str]) -> Run:
    def run(
        *arguments: str, cwd: Path = place, stdin: str = "", **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        return fork_server.run(*arguments, cwd=cwd, env={**environ, **variables}, stdin=stdin)

    return run


@pytest.fixture
def mainspring_from_nothing(place: Path, environ: dict[str, str]) -> Run:
    """The same in half a second more: an interpreter of its own, which has imported nothing."""

    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "mainspring", *arguments],
            cwd=place,
            env={**environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture
def upstream() -> Generator[Upstream]:
    """A model server on this machine."""
    with serving() as server:
        yield server


@pytest.fixture
def chat(upstream: Upstream, place: Path, environ: dict[str, str]) -> Chat:
    """`mainspring chat` at a terminal."""

    @contextmanager
    def begin(*arguments: str, **variables: str) -> Generator[Terminal]:
        env = {**environ, **upstream.variables, **variables}
        with at_terminal("chat", *arguments, cwd=place, env=env) as terminal:
            terminal.expect("/help")
            terminal.expect("> ")
            yield terminal

    return begin


@asynccontextmanager
async def opened(store: Path) -> AsyncGenerator[SessionLog]:
    async with open_sqlite(store, key=KEY) as opened_store:
        yield SessionLog(opened_store)


@pytest.fixture
def session_id(store: Path) -> str:
    """A finished session of six events."""
    return anyio.run(_write_history, store)


@pytest.fixture
def fork_id(store: Path, session_id: str) -> str:
    """A fork of it at event 2, with one message of its own, held by a worker."""
    return anyio.run(_write_fork, store, session_id)


async def _write_history(store: Path) -> str:
    async with opened(store) as log:
        created = SessionCreated(agent_name="fixer", title="Mend the flaky test")
        session = await log.create(created)
        writer = await log.hold(session.id, owner="worker-1")
        await writer.append(UserMessage(content=(TextBlock("It fails at midnight.\nWhy?"),)))
        [use] = await writer.append(AgentToolUse(name="shell", input={"command": "pytest"}))
        failed = (TextBlock("1 failed \x1b[31mred\x1b[0m"),)
        await writer.append(
            AgentToolResult(tool_use_id=use.id, content=failed, is_error=True),
            AgentMessage(content=(TextBlock("One date is local, the other is UTC."),)),
            StatusIdle(stop_reason=StopReason(type="end_turn")),
        )
        await writer.release()
        return session.id


async def _write_fork(store: Path, session_id: str) -> str:
    async with opened(store) as log:
        fork = await log.fork(session_id, at=2)
        writer = await log.hold(fork.id, owner="worker-2", seconds=600)
        await writer.append(UserMessage(content=(TextBlock("Freeze the clock."),)))
        return fork.id
