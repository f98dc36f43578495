"""The server with real clients: the official SDK's, and our own."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.mcp.conformance_server import conformance_server
from tests.mcp.peers import PYTHON, http_client, needs_sdk, stdio_client

from mainspring.capabilities.mcp.protocol.client import McpClient
from mainspring.capabilities.mcp.protocol.messages import Era
from mainspring.core.errors import McpFailed

SDK_CLIENT = Path(__file__).with_name("sdk_client.py")
STDIO = [sys.executable, "-m", "tests.mcp.conformance_server", "--stdio"]


async def sdk(mode: str, target: Sequence[str]) -> dict[str, object]:
    with anyio.fail_after(110):
        done = await anyio.run_process(
            [str(PYTHON), str(SDK_CLIENT), mode, *target], check=False, stderr=None
        )
    assert done.returncode == 0
    return msgspec.json.decode(done.stdout)


@needs_sdk
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("is_stdio", [True, False], ids=["stdio", "http"])
async def test_the_official_client_gets_everything_the_server_offers(mode: str, is_stdio: bool):
    async with conformance_server() as url:
        got = await sdk(mode, STDIO if is_stdio else [url])
    assert got == {
        "version": "2025-11-25" if mode == "legacy" else "2026-07-28",
        "tools": 29,
        "text": "This is a simple text response for testing.",
        "is_error": True,
        "progress": [0.0, 50.0, 100.0, 1.0],
        "logged": 3,
        "elicited": "User response: action=accept, content={'username': 'ann', 'email': 'a@b.c'}",
        "resources": 5,
        "templates": 1,
        "resource": "This is the content of the static text resource.",
        "prompts": 5,
        "prompt": "Prompt with arguments: arg1='one', arg2='two'",
        "cancelled": "yes",
    }


@asynccontextmanager
async def own_client(era: Era, *, is_stdio: bool) -> AsyncGenerator[McpClient, None]:
    if is_stdio:
        async with stdio_client(STDIO, era=era) as client:
            yield client
        return
    async with conformance_server() as url, http_client(url, era=era) as client:
        yield client


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("is_stdio", [True, False], ids=["stdio", "http"])
async def test_our_own_client_and_server_understand_each_other(era: Era, is_stdio: bool):
    steps: list[str] = []
    async with own_client(era, is_stdio=is_stdio) as client:
        info = await client.connect()
        tools = await client.list_tools()
        await client.call_tool("test_tool_with_progress", {}, progress=steps.append)
        read = await client.read_resource("test://template/7/data")
        prompt = await client.get_prompt("test_simple_prompt", {})
        with anyio.move_on_after(0.5):
            await client.call_tool("test_wait", {})
        cancelled = await client.call_tool("test_was_cancelled", {})
        with pytest.raises(McpFailed, match="there is no tool"):
            await client.call_tool("nothing", {})
    assert info.era == era
    assert len(tools.tools) == 29
    assert steps == ["0/100", "50/100", "100/100"]
    assert read.contents[0].text == '{"id":"7","templateTest":true,"data":"Data for ID: 7"}'
    assert prompt.messages[0].role == "user"
    assert b"yes" in bytes(cancelled.content[0])
