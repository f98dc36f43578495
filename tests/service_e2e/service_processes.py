"""The service as people run it: processes of their own, a scripted model, the official SDK."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anthropic import AsyncAnthropic
from anyio import to_thread
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from tests.api.conftest import obey
from tests.cli.upstream import Upstream, serving
from tests.environ import clean_environ
from tests.fork_server import open_command, run
from tests.keys import install

SECONDS = 60
ADMIN_KEY = "an-admin-key-for-tests-and-nothing-else-0123456789"
TOOLS: Any = [
    {
        "type": "agent_toolset_20260401",
        "default_config": {"permission_policy": {"type": "always_allow"}},
    }
]


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    key: str
    process: Process

    @asynccontextmanager
    async def client(self, key: str | None = None) -> AsyncGenerator[AsyncAnthropic]:
        async with AsyncAnthropic(
            api_key=key or self.key, base_url=self.url, max_retries=0, timeout=SECONDS
        ) as client:
            yield client


@dataclass(frozen=True, slots=True)
class Stage:
    """A folder to serve from, and a model that does what messages tell it to."""

    folder: Path
    model: Upstream
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def workspaces(self) -> Path:
        return self.folder / "workspaces"

    @asynccontextmanager
    async def serve(
        self, *options: str, key: str | None = ADMIN_KEY, first: str | None = None
    ) -> AsyncGenerator[Served]:
        """`key`: what the operator gives it; None has the service make and show one, unless
        `first` is what it has shown before."""
        words = ("serve", "--port", "0", "--model", "ollama:test", *options)
        adopted = {} if key is None else {"MAINSPRING_ADMIN_KEY": key}
        async with self._started(words, adopted) as (process, output):
            [url] = await _found(output, r"http://\S+")
            known = key or first
            yield Served(url, known or (await _found(output, r"msk_\S+"))[0], process)

    @asynccontextmanager
    async def worker(self, *options: str) -> AsyncGenerator[Process]:
        words = ("worker", "--model", "ollama:test", *options)
        async with self._started(words, {}) as (process, output):
            await _found(output, "working for")
            yield process

    async def command(self, *words: str) -> str:
        done = await to_thread.run_sync(
            partial(run, *words, cwd=self.folder, env=self._environment({}))
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def errors(self) -> str:
        """All that the processes had to say."""
        return "".join(item.read_text() for item in sorted(self.folder.glob("*.log")))

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        home = {"HOME": str(self.folder / "home"), "MAINSPRING_WORKSPACES": str(self.workspaces)}
        return {**clean_environ(), **home, **self.model.variables, **self.variables, **more}

    @asynccontextmanager
    async def _started(
        self, words: Iterable[str], more: Mapping[str, str]
    ) -> AsyncGenerator[tuple[Process, Lines]]:
        number = len(list(self.folder.glob("*.log")))
        with (self.folder / f"{number}.log").open("w") as errors:
            process = await open_command(
                *words, cwd=self.folder, env=self._environment(more), stderr=errors.fileno()
            )
        output = Lines(TextReceiveStream(process.stdout), self.folder / f"{number}.log")
        async with process:
            try:
                yield process, output
            finally:
                await ended(process)


@dataclass(slots=True)
class Lines:
    stream: TextReceiveStream
    errors: Path
    rest: str = ""

    async def next(self) -> str:
        while "\n" not in self.rest:
            try:
                self.rest += await self.stream.receive()
            except anyio.EndOfStream:
                raise AssertionError(self.errors.read_text()) from None
        line, _, self.rest = self.rest.partition("\n")
        return line


async def _found(output: Lines, pattern: str) -> list[str]:
    with anyio.fail_after(SECONDS):
        while not (found := re.findall(pattern, await output.next())):
            pass
    return found


async def ended(process: Process) -> None:
    """Told to end as an operator would, and gone."""
    with anyio.CancelScope(shield=True), anyio.fail_after(SECONDS):
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def staged(folder: Path, **variables: str) -> AsyncGenerator[Stage]:
    install(folder / "home")
    with serving() as model:
        model.otherwise = obey
        yield Stage(folder, model, variables)


def message(script: str) -> Any:  # noqa: ANN401 (as users of the SDK write: a dictionary)
    return {"type": "user.message", "content": [{"type": "text", "text": script}]}


def bash(command: str) -> str:
    """A line of a script."""
    escaped = command.replace("\\", "\\\\").replace('"', '\\"')
    return f'call bash {{"command": "{escaped}"}}'


def waiting() -> str:
    """A line of a script: a program that goes on when the test makes the file `go`."""
    return bash(
        "echo began >> effects; until [ -e go ]; do sleep 0.05; done;"
        " echo ended >> effects; echo went on"
    )


async def begun(client: AsyncAnthropic, *script: str, **asked: Any) -> str:  # noqa: ANN401
    """A session of an agent that may do everything, in an environment of its own."""
    agent = await client.beta.agents.create(name="clerk", model="claude-sonnet-4-5", tools=TOOLS)
    environment = await client.beta.environments.create(name=f"of-{agent.id}")
    return await begun_in(client, agent.id, environment.id, *script, **asked)


async def begun_in(
    client: AsyncAnthropic,
    agent: str,
    environment: str,
    *script: str,
    **asked: Any,  # noqa: ANN401
) -> str:
    session = await client.beta.sessions.create(
        agent=agent,
        environment_id=environment,
        initial_events=[message("\n".join(script))] if script else [],
        **asked,
    )
    return session.id


async def told(client: AsyncAnthropic, session_id: str, script: str) -> None:
    await client.beta.sessions.events.send(session_id, events=[message(script)])


async def upto_idle(client: AsyncAnthropic, session_id: str, *, times: int = 1) -> list[Any]:
    """All events from its beginning, until it has come to rest so many times."""
    events: list[Any] = []
    with anyio.fail_after(SECONDS):
        stream = await client.beta.sessions.events.stream(session_id, extra_query={"after": "0"})
        async with stream:
            async for event in stream:
                events.append(event)
                times -= event.type == "session.status_idle"
                if not times:
                    return events
    raise AssertionError(f"the stream of {session_id} ended: {[item.type for item in events]}")


async def reached(client: AsyncAnthropic, session_id: str, kind: str) -> Any:  # noqa: ANN401
    """The first event of a kind."""
    with anyio.fail_after(SECONDS):
        stream = await client.beta.sessions.events.stream(session_id, extra_query={"after": "0"})
        async with stream:
            async for event in stream:
                if event.type == kind:
                    return event
    raise AssertionError(f"no {kind} in the stream of {session_id}")


def results(events: Iterable[Any]) -> list[str]:
    """What tools have answered."""
    return ["".join(b.text for b in e.content) for e in events if e.type == "agent.tool_result"]


def said(events: Iterable[Any]) -> list[str]:
    return ["".join(b.text for b in e.content) for e in events if e.type == "agent.message"]


async def eventually(path: Path, text: str) -> None:
    """Until the file holds it."""
    with anyio.fail_after(SECONDS):
        while not path.exists() or text not in path.read_text():  # noqa: ASYNC110 (another process)
            await anyio.sleep(0.02)
