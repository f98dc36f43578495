"""`mainspring serve` in a process of its own, with a model that does what messages tell it to."""

import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from anthropic import Anthropic, AsyncAnthropic
from tests.api.whole_api import Whole, whole
from tests.cli.upstream import Part, people_and_model, serving
from tests.environ import clean_environ

_SECONDS = 60
_PROGRAM = (sys.executable, "-m", "mainspring")
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
    process: subprocess.Popen[str]
    folder: Path


@contextmanager
def platform(
    folder: Path,
    *options: str,
    answer: Callable[[dict[str, Any]], tuple[Part, ...]] = obey,
    program: Sequence[str] = _PROGRAM,
    **variables: str,
) -> Generator[Platform]:
    """The service, with everything that is usual and nothing of this machine's. `answer` is what
    its model says to a request."""
    (folder / "home").mkdir(exist_ok=True)
    with serving() as model, (folder / "stderr.txt").open("w") as errors:
        model.otherwise = answer
        process = subprocess.Popen(
            [*program, *_SERVE, *options],
            cwd=folder,
            env={**clean_environ(), "HOME": str(folder / "home"), **model.variables, **variables},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Platform(*_welcome(process, folder), process, folder)
        finally:
            process.terminate()
            assert process.stdout is not None
            process.stdout.close()
            process.wait(_SECONDS)


def _welcome(process: subprocess.Popen[str], folder: Path) -> tuple[str, str]:
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found += re.findall(r"http://\S+|msk_\S+", line)
        if len(found) == 2:
            return found[0], found[1]
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
