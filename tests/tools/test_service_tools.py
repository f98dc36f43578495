"""Services: programs by name that outlive a call. In the real sandbox."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.abilities import require_sandbox
from tests.function_tools.samples import call

from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.sandbox_client import SandboxServices
from mainspring.capabilities.tools.service_tools import service_tools
from mainspring.core.content import plain_text
from mainspring.core.tool import Tool, ToolResult


@asynccontextmanager
async def open_tools(folder: Path) -> AsyncGenerator[dict[str, Tool]]:
    backend = require_sandbox()
    workspace = folder / "ws"
    workspace.mkdir()
    site = SandboxSpec(session_id="test", workspace=workspace, state=folder / "state")
    services = SandboxServices(site, backend)
    tools = service_tools(services, judge=lambda command: (False, "rm" in command))
    try:
        yield {tool.spec.name: tool for tool in tools}
    finally:
        with anyio.fail_after(60):
            await services.close()


async def use_tool(made: Tool, **given: object) -> ToolResult:
    with anyio.fail_after(60):
        return await made.run(call(**given))


async def result_text(made: Tool, **given: object) -> str:
    return plain_text((await use_tool(made, **given)).content)


async def wait_for_output(word: str, made: Tool, name: str) -> str:
    with anyio.fail_after(60):
        while word not in (shown := await result_text(made, name=name)):
            continue
    return shown


async def test_a_service_is_started_observed_and_stopped(tmp_path: Path):
    async with open_tools(tmp_path) as tools:
        asked = call(name="web", command="echo ready; echo here >&2; exec sleep 60")
        await tools["service_start"].run(asked)
        assert (
            await wait_for_output("here", tools["service_output"], "web")
            == "[web runs]\nready\nhere"
        )
        assert (await tools["service_start"].run(asked)).ok  # as after a crash: nothing is repeated
        other = replace(asked, idempotency_key="key_2")
        assert (await tools["service_start"].run(other)).error == "unavailable"
        assert (
            await result_text(tools["service_stop"], name="web") == "[web is stopped]\nready\nhere"
        )
        assert (await use_tool(tools["service_output"], name="web")).error == "failed"


async def test_an_ended_service_reports_its_exit_status(tmp_path: Path):
    async with open_tools(tmp_path) as tools:
        await tools["service_start"].run(call(name="job", command="echo done; exit 3"))
        shown = await wait_for_output("ended", tools["service_output"], "job")
        assert shown == "[job has ended: exit status 3]\ndone"


async def test_an_unknown_service_is_reported(tmp_path: Path):
    async with open_tools(tmp_path) as tools:
        for name in ("service_output", "service_stop"):
            outcome = await use_tool(tools[name], name="nobody")
            assert outcome.error == "failed"
            assert "no service nobody" in plain_text(outcome.content)


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "x" * 41, "-a", "a\n"])
async def test_an_invalid_service_name_is_refused(tmp_path: Path, name: str):
    async with open_tools(tmp_path) as tools:
        for made in tools.values():
            given: dict[str, object] = {"name": name}
            if made.spec.name == "service_start":
                given["command"] = "true"
            assert "name" in (made.invalid(given) or "")


async def test_only_starting_and_stopping_have_effects(tmp_path: Path):
    async with open_tools(tmp_path) as tools:
        assert tools["service_output"].traits({}).read_only
        assert not tools["service_stop"].traits({}).read_only
        assert tools["service_start"].traits({"command": "rm x"}).destructive
        preview = tools["service_start"].preview
        assert preview is not None
        assert await preview(call(name="a", command="run it")) == "run it"
