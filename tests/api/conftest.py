"""`mainspring serve` in a process of its own, with a model that does what messages tell it to."""

import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import pytest
from anthropic import Anthropic, AsyncAnthropic
from tests import fork_server
from tests.api.whole_api import Whole, whole
from tests.cli.upstream import Part, people_and_model, serving
from tests.environ import clean_environ

_SECONDS = 60
_SERVE = ("serve", "--port", "0", "--model", "ollama:test")


def obey(request: dict[str, Any]) -> tuple[Part, ...]:
    """The last message is a script: a line for each turn, `say WORDS` or `call TOOL JSON`."""
    messages = people_and_model(request)
    last = max(at for at, each in enumerate(messages) if each["role"] == "user")
    turns = sum(message["role"] == "assistant" for message in messages[last:])
    content = messages[last]["content"]
    text = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
    lines = [line for line in text.splitlines() if re.match(r"(say|call) ", line)]
    if turns >= len(lines):
        return ("done",)
    parts: list[Part] = []
    for order in lines[turns].split(" && "):
        verb, _, rest = order.partition(" ")
        name, _, given = rest.partition(" ")
        parts.append(rest if verb == "say" else {"name": name, "arguments": given or "{}"})
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class Platform:
    url: str
    key: str
    folder: Path


@contextmanager
def platform(
    folder: Path,
    *options: str,
    answer: Callable[[dict[str, Any]], tuple[Part, ...]] = obey,
    program: Sequence[str] = (),
    **variables: str,
) -> Generator[Platform]:
    """The service, with everything that is usual and nothing of this machine's. `answer` is what
    its model says to a request. `program` starts it instead of the fork server."""
    (folder / "home").mkdir(exist_ok=True)
    with serving() as model, (folder / "stderr.txt").open("w") as errors:
        model.otherwise = answer
        env = {**clean_environ(), "HOME": str(folder / "home"), **model.variables, **variables}
        start = partial(_started, program) if program else _forked
        with start([*_SERVE, *options], folder, env, errors) as output:
            yield Platform(*_welcome(output, folder), folder)


@contextmanager
def _forked(
    arguments: Sequence[str], folder: Path, env: Mapping[str, str], errors: IO[str]
) -> Generator[IO[str]]:
    read, write = os.pipe()
    with os.fdopen(read) as output:
        with open(os.devnull, "rb") as nothing, os.fdopen(write, "wb"):
            order = fork_server.Order(arguments=arguments, cwd=str(folder), env=env)
            child = fork_server.Child(order, nothing.fileno(), write, errors.fileno())
        try:
            yield output
        finally:
            child.send_signal(signal.SIGTERM)
            output.close()
            child.wait()


@contextmanager
def _started(
    program: Sequence[str],
    arguments: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    errors: IO[str],
) -> Generator[IO[str]]:
    words = [*program, *arguments]
    process = subprocess.Popen(
        words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(_SECONDS)


def _welcome(output: IO[str], folder: Path) -> tuple[str, str]:
    words: list[str] = []
    for line in output:
        words += re.findall(r"http://\S+|msk_\S+", line)
        if len(words) == 2:
            return words[0], words[1]
    raise AssertionError((folder / "stderr.txt").read_text())


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[Anthropic]:
    with (
        platform(tmp_path_factory.mktemp("service")) as running,
        Anthropic(
            api_key=running.key, base_url=running.url, max_retries=0, timeout=_SECONDS
        ) as made,
    ):
        yield made


class HasClients(Protocol):
    """What the fixture `api` of a file gives: a server that the official client can ask."""

    def client(self, key: str = ...) -> AsyncAnthropic: ...


@pytest.fixture
async def acme(api: HasClients) -> AsyncGenerator[AsyncAnthropic]:
    async with api.client("acme:admin") as client:
        yield client


@pytest.fixture
async def rival(api: HasClients) -> AsyncGenerator[AsyncAnthropic]:
    """The administrator of another tenant."""
    async with api.client("rival:admin") as client:
        yield client


@pytest.fixture
async def operator(api: HasClients) -> AsyncGenerator[AsyncAnthropic]:
    async with api.client("acme:operator") as client:
        yield client


@pytest.fixture
async def user(api: HasClients) -> AsyncGenerator[AsyncAnthropic]:
    async with api.client("acme:user") as client:
        yield client


@pytest.fixture
async def viewer(api: HasClients) -> AsyncGenerator[AsyncAnthropic]:
    async with api.client("acme:viewer") as client:
        yield client


@pytest.fixture(scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Whole]:
    """The whole API, for files that have no smaller one of their own; their tests share it."""
    async with whole(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture
async def own_api(tmp_path: Path) -> AsyncGenerator[Whole]:
    """The same, for a test that needs what others change, or changes what others need."""
    async with whole(tmp_path) as running:
        yield running
