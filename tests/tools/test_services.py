"""Services: programs by name that outlive a call."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, STDOUT

import anyio
import pytest
from anyio.abc import Process
from tests.tools.samples import call

from mainspring.capabilities.tools.services import service_tools
from mainspring.core.content import plain_text
from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import Captured
from mainspring.core.tool import Outcome, Tool


class OpenServices:
    """Real processes, held in by nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, Process] = {}

    async def start_service(self, name: str, argv: tuple[str, ...]) -> None:
        if name in self.running and self.running[name].returncode is None:
            raise SandboxFailed(f"{name} runs already")
        with (self.folder / name).open("wb") as log:
            self.running[name] = await anyio.open_process(
                list(argv), stdin=DEVNULL, stdout=log, stderr=STDOUT
            )

    async def service_output(self, name: str) -> tuple[Captured, int | None]:
        process = self._named(name)
        content = (self.folder / name).read_bytes()
        return Captured(head=content, size=len(content)), process.returncode

    async def stop_service(self, name: str) -> None:
        process = self._named(name)
        if process.returncode is None:
            process.kill()
        await process.wait()

    def _named(self, name: str) -> Process:
        if name not in self.running:
            raise SandboxFailed(f"no service {name} was started")
        return self.running[name]


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[tuple[OpenServices, dict[str, Tool]]]:
    services = OpenServices(folder)
    tools = service_tools(services, judge=lambda command: (False, "rm" in command))
    try:
        yield services, {each.spec.name: each for each in tools}
    finally:
        with anyio.fail_after(10):
            for name in services.running:
                await services.stop_service(name)


async def used(made: Tool, **given: object) -> Outcome:
    with anyio.fail_after(10):
        return await made.run(call(**given))


async def text(made: Tool, **given: object) -> str:
    return plain_text((await used(made, **given)).content)


async def test_a_service_is_started_watched_and_stopped(tmp_path: Path):
    async with opened(tmp_path) as (_, tools):
        await text(tools["service_start"], name="web", command="echo ready; exec sleep 60")
        with anyio.fail_after(10):
            while "ready" not in (shown := await text(tools["service_output"], name="web")):
                await anyio.lowlevel.checkpoint()
        assert shown == "[web runs]\nready"
        again = await used(tools["service_start"], name="web", command="true")
        assert again.error == "unavailable"
        assert await text(tools["service_stop"], name="web") == "web is stopped."
        assert "has ended" in await text(tools["service_output"], name="web")


async def test_what_a_crash_left_in_doubt_is_looked_up(tmp_path: Path):
    async with opened(tmp_path) as (_, tools):
        probe = tools["service_start"].probe
        assert probe is not None
        asked = call(name="web", command="exec sleep 60")
        assert await probe(asked) is None
        await tools["service_start"].run(asked)
        found = await probe(asked)
        assert found is not None
        assert "web runs" in plain_text(found.content)


async def test_a_service_that_is_not_there_is_told(tmp_path: Path):
    async with opened(tmp_path) as (_, tools):
        for name in ("service_output", "service_stop"):
            outcome = await used(tools[name], name="nobody")
            assert outcome.error == "failed"
            assert "no service nobody" in plain_text(outcome.content)


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "x" * 41, "-a", "a\n"])
async def test_names_are_plain(tmp_path: Path, name: str):
    async with opened(tmp_path) as (_, tools):
        for made in tools.values():
            given: dict[str, object] = {"name": name}
            if made.spec.name == "service_start":
                given["command"] = "true"
            assert "name" in (made.invalid(given) or "")


async def test_only_starting_and_stopping_change_anything(tmp_path: Path):
    async with opened(tmp_path) as (_, tools):
        assert tools["service_output"].traits({}).read_only
        assert not tools["service_stop"].traits({}).read_only
        assert tools["service_start"].traits({"command": "rm x"}).destructive
        preview = tools["service_start"].preview
        assert preview is not None
        assert await preview(call(name="a", command="run it")) == "run it"
