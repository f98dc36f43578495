"""What the client makes of servers that keep to the protocol, and of those that do not."""

from collections.abc import Mapping

import anyio
import msgspec
import pytest
from tests.mcp.scripted_server import (
    DISCOVERED,
    INITIALIZED,
    Fields,
    connected_client,
    error,
    legacy,
    modern,
    result,
    scripted_client,
)

from mainspring.capabilities.mcp.protocol.client import ClientLimits
from mainspring.core.errors import McpFailed

QUICK = ClientLimits(connect_seconds=0.3, probe_seconds=0.1, request_seconds=0.1, call_seconds=0.1)


def silent(_: Fields) -> list[object]:
    return []


def fields(value: object) -> Mapping[str, object]:
    assert isinstance(value, dict)
    return value  # pyright: ignore[reportUnknownVariableType]


async def test_a_modern_request_describes_itself_without_initialization() -> None:
    def respond(message: Fields) -> list[object]:
        return [result(message, resultType="complete", tools=[])]

    async with scripted_client(modern(respond)) as (client, program):
        info = await client.connect()
        await client.list_tools()
    assert (info.era, info.version) == ("modern", "2026-07-28")
    assert program.methods() == ["server/discover", "tools/list"]
    meta = fields(fields(program.heard[1]["params"])["_meta"])
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


async def test_a_server_that_ignores_the_probe_is_treated_as_legacy() -> None:
    def respond(message: Fields) -> list[object]:
        match message["method"]:
            case "initialize":
                return [result(message, **INITIALIZED)]
            case _:
                return []

    limits = ClientLimits(probe_seconds=0.1)
    async with scripted_client(respond, limits=limits) as (client, program):
        assert (await client.connect()).era == "legacy"
    assert program.methods() == ["server/discover", "initialize", "notifications/initialized"]


async def test_a_slow_modern_server_is_not_mistaken_for_a_legacy_one() -> None:
    waiting: list[Fields] = []

    def respond(message: Fields) -> list[object]:
        waiting.append(message)
        if message["method"] != "initialize":
            return []
        return [error(message, -32601, "unknown"), result(waiting[0], **DISCOVERED)]

    limits = ClientLimits(probe_seconds=0.05)
    async with scripted_client(respond, limits=limits) as (client, program):
        assert (await client.connect()).era == "modern"
    assert program.methods() == ["server/discover", "initialize"]


async def test_a_known_era_is_not_probed_again() -> None:
    async with scripted_client(legacy(silent), era="legacy") as (client, program):
        await client.connect()
    assert program.methods() == ["initialize", "notifications/initialized"]


@pytest.mark.parametrize(
    ("supported", "era"),
    [(["2026-07-28"], "modern"), (["2025-11-25"], "legacy"), (["2099-01-01"], None)],
)
async def test_versions_are_negotiated_with_servers(supported: list[str], era: str | None) -> None:
    asked: list[Fields] = []

    def respond(message: Fields) -> list[object]:
        asked.append(message)
        if message["method"] == "server/discover" and len(asked) == 1:
            return [error(message, -32022, "unsupported", {"supported": supported})]
        if message["method"] == "server/discover":
            return [result(message, resultType="complete", supportedVersions=supported)]
        return [result(message, **INITIALIZED)] if "id" in message else []

    async with scripted_client(respond) as (client, _):
        if era is None:
            with pytest.raises(McpFailed, match="none of these versions"):
                await client.connect()
        else:
            assert (await client.connect()).era == era


async def test_silent_servers_time_out_and_late_answers_are_ignored() -> None:
    async with scripted_client(silent, limits=QUICK) as (client, _):
        with pytest.raises(McpFailed, match="no connection within"):
            await client.connect()
    calls: list[Fields] = []

    def respond(message: Fields) -> list[object]:
        if message["method"] != "tools/call":
            return []
        calls.append(message)
        if len(calls) == 1:
            return []
        late = result(calls[0], resultType="complete", content=[{"type": "text", "text": "late"}])
        return [late, result(message, resultType="complete", content=[])]

    async with connected_client(modern(respond), limits=QUICK) as (client, program):
        with pytest.raises(McpFailed) as timed_out:
            await client.call_tool("a", {})
        assert timed_out.value.is_in_doubt
        assert (await client.call_tool("a", {})).content == []
    assert "notifications/cancelled" in program.methods()


@pytest.mark.parametrize(
    "noise",
    [
        b"Server listening...\n",
        b"\xff\xfe\n",
        b'{"jsonrpc": "2.0", "id": 99, "result": {}}\n',
        b'{"jsonrpc": "2.0", "id": "1", "result": {}}\n',
        b'{"jsonrpc": "2.0", "id": 2.5, "result": {}}\n',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -1, "message": "x"}}\n',
        b"[1, 2, 3]\n\n\n",
        b"[" * 5_000 + b"\n",
        b'{"id": 1, "result": {"a": "\\ud800"}}\n',
        b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": 7}\n',
        b'{"jsonrpc": "2.0", "id": 4, "method": "sampling/createMessage", "params": {}}\n',
        b'{"jsonrpc": "2.0", "id": 4, "method": "ping"}\n',
    ],
)
async def test_messages_that_answer_no_request_are_ignored(noise: bytes) -> None:
    def respond(message: Fields) -> list[object]:
        if "method" not in message:
            return []
        answer = result(message, resultType="complete", content=[{"type": "text", "text": "ok"}])
        return [noise, answer, noise]

    async with connected_client(modern(respond)) as (client, _):
        for _ in range(3):
            assert len((await client.call_tool("a", {})).content) == 1


async def test_an_endless_message_ends_the_connection() -> None:
    def respond(_: Fields) -> list[object]:
        return [b"x" * 65_536 for _ in range(32)]

    async with connected_client(modern(respond)) as (client, _):
        with pytest.raises(McpFailed, match="more than 1,048,576 bytes"):
            await client.call_tool("a", {})


async def test_an_answer_that_is_nested_too_deeply_ends_the_call_at_once() -> None:
    nested = b"[" * 200_000 + b"]" * 200_000

    def respond(message: Fields) -> list[object]:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": 0}
        return [msgspec.json.encode(answer).replace(b"0}", nested + b"}") + b"\n"]

    async with connected_client(modern(respond)) as (client, _):
        with pytest.raises(McpFailed, match="nested too deeply"), anyio.fail_after(60):
            await client.call_tool("a", {})


async def test_a_server_with_too_many_concurrent_requests_is_disconnected() -> None:
    started = anyio.Event()

    class Never:
        capabilities: Mapping[str, object] = {"elicitation": {}}

        async def __call__(self, method: str, params: bytes) -> Mapping[str, object]:
            started.set()
            await anyio.sleep_forever()
            raise AssertionError

    def respond(message: Fields) -> list[object]:
        if message.get("method") != "tools/call":
            return []
        ask: Fields = {"jsonrpc": "2.0", "method": "elicitation/create", "params": {}}
        return [{**ask, "id": n} for n in range(1_000)]

    async with connected_client(legacy(respond), input_handler=Never()) as (client, _):
        with pytest.raises(McpFailed, match="more than 64 things at a time"):
            await client.call_tool("a", {})
    assert started.is_set()


async def test_an_endless_list_is_cut() -> None:
    def respond(message: Fields) -> list[object]:
        params = fields(message["params"])
        page = int(str(params.get("cursor", 0)))
        tools: list[Fields] = [{"name": f"t{page}-{n}", "inputSchema": {}} for n in range(10)]
        return [result(message, resultType="complete", tools=tools, nextCursor=str(page + 1))]

    limits = ClientLimits(max_items=25)
    async with connected_client(modern(respond), limits=limits) as (client, program):
        assert len((await client.list_tools()).tools) == 25
    assert program.methods().count("tools/list") == 3


async def test_an_invalid_definition_does_not_remove_the_other_tools() -> None:
    valid = {"name": "good", "inputSchema": {"type": "object"}}
    header = {"type": "number", "x-mcp-header": "A"}
    deep: Fields = {}
    for _ in range(60):
        deep = {"properties": {"x": deep}}
    invalid: list[object] = [
        7,
        {"name": 7},
        {"name": ""},
        {"name": "list", "inputSchema": []},
        {"name": "good", "inputSchema": {}},
        {"name": "deep", "inputSchema": deep},
        {"name": "header", "inputSchema": {"properties": {"a": header}}},
    ]

    def respond(message: Fields) -> list[object]:
        return [result(message, resultType="complete", tools=[valid, *invalid])]

    async with connected_client(modern(respond)) as (client, _):
        found = await client.list_tools()
    assert [tool.name for tool in found.tools] == ["good"]
    assert len(found.rejected) == len(invalid)


async def test_input_required_by_a_server_is_sent_with_its_state() -> None:
    class Answers:
        capabilities: Mapping[str, object] = {"elicitation": {"form": {}}}

        async def __call__(self, method: str, params: bytes) -> Mapping[str, object]:
            assert (method, params) == ("elicitation/create", b'{"message":"who?"}')
            return {"action": "accept", "content": {"name": "Ada"}}

    def respond(message: Fields) -> list[object]:
        params = fields(message["params"])
        if "requestState" not in params:
            ask = {"method": "elicitation/create", "params": {"message": "who?"}}
            needs = {"inputRequests": {"a": ask}, "requestState": "opaque"}
            return [result(message, resultType="input_required", **needs)]
        assert params["requestState"] == "opaque"
        said = [{"type": "text", "text": str(params["inputResponses"])}]
        return [result(message, resultType="complete", content=said)]

    async with connected_client(modern(respond), input_handler=Answers()) as (client, _):
        [content] = (await client.call_tool("a", {})).content
    assert b"Ada" in bytes(content)
    async with connected_client(modern(respond)) as (client, _):
        with pytest.raises(McpFailed, match="not supported by this client"):
            await client.call_tool("a", {})


async def test_endless_or_invalid_input_requests_are_an_error() -> None:
    def again(message: Fields) -> list[object]:
        return [result(message, resultType="input_required", requestState="x")]

    def odd(message: Fields) -> list[object]:
        return [result(message, resultType="task")]

    for respond, why in ((again, "10 times"), (odd, "unknown result type")):
        async with connected_client(modern(respond)) as (client, _):
            with pytest.raises(McpFailed, match=why):
                await client.call_tool("a", {})


async def test_a_server_that_exits_during_a_call_leaves_it_in_doubt() -> None:
    async with connected_client(modern(lambda _: [b""])) as (client, _):
        with pytest.raises(McpFailed) as ended:
            await client.call_tool("a", {})
        assert ended.value.is_in_doubt
        with pytest.raises(McpFailed) as gone:
            await client.call_tool("a", {})
        assert not gone.value.is_in_doubt
