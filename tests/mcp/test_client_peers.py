"""The client with real servers: both eras, both transports."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import pytest
from tests.mcp.peers import (
    PYTHON,
    SDK_SERVER,
    http_client,
    needs_node_servers,
    needs_sdk,
    node_server,
    sdk_http_server,
    stdio_client,
)

from mainspring.capabilities.mcp.protocol.client import McpClient
from mainspring.capabilities.mcp.protocol.messages import CallResult, Content, Era, Image, Text
from mainspring.core.errors import McpFailed

Kind = Literal["stdio", "http"]


@asynccontextmanager
async def sdk_client(kind: Kind, era: Era) -> AsyncGenerator[McpClient, None]:
    known: Era | None = "legacy" if era == "legacy" else None
    if kind == "stdio":
        async with stdio_client([str(PYTHON), str(SDK_SERVER)], era=known) as client:
            yield client
    else:
        async with sdk_http_server() as url, http_client(url, era=known) as client:
            yield client


def contents(result: CallResult) -> list[Content]:
    return [msgspec.json.decode(item, type=Content) for item in result.content]


def texts(result: CallResult) -> list[str]:
    return [item.text for item in contents(result) if isinstance(item, Text)]


@needs_sdk
@pytest.mark.parametrize(
    ("kind", "era"),
    [
        ("stdio", "modern"),
        pytest.param("stdio", "legacy", marks=pytest.mark.slow),
        pytest.param("http", "modern", marks=pytest.mark.slow),
        ("http", "legacy"),
    ],
)
async def test_a_server_of_the_official_sdk_is_understood(kind: Kind, era: Era) -> None:
    async with sdk_client(kind, era) as client:
        info = await client.connect()
        assert (info.era, info.implementation.name) == (era, "sdk")
        tools = await client.list_tools()
        assert [tool.name for tool in tools.tools][:2] == ["add", "count"]
        assert tools.rejected == ()
        assert texts(await client.call_tool("add", {"a": 2, "b": 3})) == ["5"]
        steps: list[str] = []
        assert texts(await client.call_tool("count", {"to": 3}, progress=steps.append)) == ["done"]
        assert steps == ["0/3 step 0", "1/3 step 1", "2/3 step 2"]
        [picture] = contents(await client.call_tool("picture", {}))
        assert isinstance(picture, Image)
        failed = await client.call_tool("fail", {})
        assert failed.is_error
        [note] = await client.list_resources()
        assert (await client.read_resource(note.uri)).contents[0].text == "one"
        [prompt] = await client.list_prompts()
        greeting = (await client.get_prompt(prompt.name, {"name": "Ada"})).messages[0].content
        assert greeting == Text("Say hello to Ada.")
        with pytest.raises(McpFailed) as refused:
            await client.get_prompt("unknown", {})
        assert refused.value.code is not None

        with anyio.CancelScope() as scope:
            await client.call_tool("wait", {}, progress=lambda _: scope.cancel())
        assert scope.cancelled_caught
        assert texts(await client.call_tool("cancelled", {})) == ["yes"]


async def is_in_doubt_after(client: McpClient, tool: str) -> bool:
    with pytest.raises(McpFailed) as failed:
        await client.call_tool(tool, {})
    return failed.value.is_in_doubt


@needs_sdk
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_server_that_dies_during_a_call_leaves_it_in_doubt(kind: Kind) -> None:
    async with sdk_client(kind, "modern") as client:
        await client.connect()
        assert await is_in_doubt_after(client, "die")
        with anyio.fail_after(60):  # a pooled connection may end only when it is used
            while await is_in_doubt_after(client, "cancelled"):
                pass


@needs_node_servers
async def test_the_everything_server_is_detected_as_legacy() -> None:
    async with stdio_client(node_server("everything")) as client:
        info = await client.connect()
        assert (info.era, info.version) == ("legacy", "2025-11-25")
        assert len((await client.list_tools()).tools) >= 10
        assert texts(await client.call_tool("echo", {"message": "hi"})) == ["Echo: hi"]


@needs_node_servers
async def test_the_filesystem_server_reads_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("content of a")
    async with stdio_client(node_server("filesystem", str(tmp_path))) as client:
        await client.connect()
        result = await client.call_tool("read_text_file", {"path": str(tmp_path / "a.txt")})
        assert texts(result) == ["content of a"]


@needs_sdk
@pytest.mark.slow
@pytest.mark.parametrize("name", ["git", "time", "fetch"])
async def test_the_reference_servers_for_python_list_their_tools(name: str) -> None:
    async with stdio_client([str(PYTHON.with_name(f"mcp-server-{name}"))]) as client:
        await client.connect()
        assert (await client.list_tools()).tools
