"""Servers of both eras that answer at random, and a client that has to bear them.

`python -m tests.mcp.fuzzing SECONDS [SEED]` goes on for that long and prints what it has seen.
"""

import gc
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, cast

import anyio
import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.mcp.peers import http_client
from tests.mcp.scripted_server import (
    DISCOVERED,
    INITIALIZED,
    Fields,
    error,
    result,
    scripted_client,
)

from mainspring.capabilities.mcp.elicitation import Elicitations
from mainspring.capabilities.mcp.protocol.client import ClientLimits, McpClient, Progress, ToolList
from mainspring.capabilities.mcp.protocol.messages import CallResult, Era
from mainspring.capabilities.mcp.tools import definition_text, server_tools, tool_result
from mainspring.core.errors import McpFailed
from mainspring.core.events import ApprovalAnswered
from mainspring.core.tool import Call

CaseTransport: TypeAlias = Literal["stdio", "http"]
LIMITS = ClientLimits(
    connect_seconds=0.5, probe_seconds=0.1, request_seconds=0.1, call_seconds=0.1, max_pages=5
)
_MAX_BYTES = 1 << 20
_CASE_SECONDS = 60.0
_AT_A_TIME = 20
_PAGE = resource.getpagesize()
TOOL: Fields = {
    "name": "a",
    "description": "does it",
    "inputSchema": {
        "type": "object",
        "properties": {"x": {"type": "string", "x-mcp-header": "X"}, "y": {"enum": [1, 2]}},
        "required": ["x"],
    },
    "annotations": {"readOnlyHint": True},
}
CONTENT: list[Fields] = [
    {"type": "text", "text": "hello"},
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {"type": "resource_link", "uri": "file:///x", "name": "x"},
    {"type": "resource", "resource": {"uri": "file:///x", "text": "y"}},
]
RESULTS: dict[object, Fields] = {
    "server/discover": DISCOVERED,
    "initialize": INITIALIZED,
    "tools/list": {"tools": [TOOL], "nextCursor": "2"},
    "tools/call": {"content": CONTENT, "structuredContent": {"nextCursor": "x"}},
    "resources/list": {"resources": [{"uri": "file:///x", "name": "x"}]},
    "resources/read": {"contents": [{"uri": "file:///x", "blob": "aGk="}]},
    "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "q"}]}]},
    "prompts/get": {"messages": [{"role": "user", "content": CONTENT[0]}]},
}
QUESTIONS: list[Fields] = [
    {"message": "?"},
    {"message": "Which?", "requestedSchema": {"type": "object", "required": ["x"], "properties": {
        "x": {"type": "string", "enum": ["a"]}, "n": {"type": "integer", "default": 1}}}},
    {"mode": "url", "message": "Pay", "url": "https://pay.example/1"},
]  # fmt: skip
_ODD: list[object] = [
    None, True, -1, 2**70, 1e400, "", "x" * 5_000, "\ud800", "\u202e\U000e0041", [], {}, [[]],
    {"type": "object", "$ref": "#"}, {"$ref": "http://127.0.0.1/"}, "input_required", "2026-07-28",
]  # fmt: skip


@dataclass(slots=True)
class Tally:
    cases: int = 0
    results: Counter[str] = field(default_factory=Counter[str])


class HostileServer:
    """Answers what is asked, mostly wrongly."""

    def __init__(self, seed: int, era: Era) -> None:
        self._random = random.Random(seed)
        self._era: Era = era
        self._rate = self._random.choice((0.05, 0.3, 0.8))

    def respond(self, message: Fields) -> list[object]:
        if message.get("id") is None or "method" not in message:
            return self._unasked(message)
        answer = self._answer(message)
        if self._random.random() < self._rate:
            answer = self._spoil(answer, 0)
        spoken: list[object] = [answer]
        if self._random.random() < self._rate:
            spoken = self._misbehave(message, answer)
        return [*self._unasked(message), *spoken]

    def _answer(self, message: Fields) -> Fields:
        method = message["method"]
        is_foreign = method == ("initialize" if self._era == "modern" else "server/discover")
        if is_foreign or method not in RESULTS:
            return error(message, self._random.choice((-32601, -32022, -32020, 7)), "no")
        if method == "tools/call" and self._era == "modern" and self._random.random() < 0.3:
            asked = {
                str(number): {"method": "elicitation/create", "params": self._question()}
                for number in range(self._random.choice((0, 1, 1, 3)))
            }
            state = self._random.choice(("s", "\ud800 x", "x" * 300_000, None))
            return result(
                message, resultType="input_required", inputRequests=asked, requestState=state
            )
        return result(message, **{"resultType": "complete", **RESULTS[method]})

    def _question(self) -> object:
        params = self._random.choice(QUESTIONS)
        return self._spoil(params, 0) if self._random.random() < self._rate else params

    def _spoil(self, value: object, depth: int) -> object:
        """The same JSON with some of it exchanged, left out or repeated."""
        if self._random.random() < 0.08:
            return self._random.choice(_ODD)
        if isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            kept = {
                key: self._spoil(item, depth + 1)
                for key, item in fields.items()
                if self._random.random() > 0.05
            }
            return {**kept, "x" * self._random.choice((1, 300)): self._random.choice(_ODD)}
        if isinstance(value, list):
            items = [self._spoil(item, depth + 1) for item in cast("list[object]", value)]
            return items * self._random.choice((1, 1, 1, 0, 50))
        return value

    def _misbehave(self, message: Fields, answer: object) -> list[object]:
        line = _encode(answer) + b"\n"
        ways: list[list[object]] = [
            [],  # silence
            [b""],  # the end
            [line[: self._random.randrange(len(line))], b""],
            [self._random.randbytes(self._random.randrange(2_000)), b"\n", line],
            [b"[" * 100_000 + b"\n", line],
            [b"x" * (_MAX_BYTES + 70_000)],
            [line[:3], line[3:9], line[9:]],
            [line * 20],
            [{**message, "result": {}, "id": 10**6}],
            [line.replace(b"\n", b"\r\n"), b"\n\n\n"],
            [error(message, self._random.choice((-32601, -32020, -32022, 0)), "x" * 999)],
            [_encode([answer]) + b"\n"],
        ]
        return self._random.choice(ways)

    def _unasked(self, message: Fields) -> list[object]:
        if self._random.random() > self._rate / 2:
            return []
        token = cast(Fields, cast(Fields, message.get("params") or {}).get("_meta") or {})
        methods = ("progress", "tools/list_changed", "cancelled", "message", "\ud800")
        note: Fields = {
            "jsonrpc": "2.0",
            "method": f"notifications/{self._random.choice(methods)}",
            "params": self._spoil(
                {"progressToken": token.get("progressToken", 1), "progress": 1, "requestId": "q"}, 0
            ),
        }
        asked: Fields = {
            "jsonrpc": "2.0",
            "id": self._random.choice(("q", "r")),
            "method": self._random.choice(("elicitation/create", "sampling/createMessage")),
            "params": self._question(),
        }
        ping: Fields = {"jsonrpc": "2.0", "id": self._random.choice(_ODD), "method": "ping"}
        return [self._random.choice([note, asked, ping])] * self._random.choice((1, 1, 100))


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value) if not _is_unprintable(value) else b'{"id": "\\ud800"}'


def _is_unprintable(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except (UnicodeError, OverflowError, msgspec.MsgspecError):
        return True
    return False


async def play_case(seed: int, era: Era, transport: CaseTransport, tally: Tally) -> None:
    """
    Raises:
        TimeoutError: it hangs.
    """
    server = HostileServer(seed, era)

    def respond(message: Fields) -> list[object]:
        return [item if isinstance(item, bytes) else _encode(item) + b"\n" for item in
                server.respond(message)]  # fmt: skip

    with anyio.fail_after(_CASE_SECONDS):
        if transport == "http":
            await _over_http(respond, tally)
        else:
            async with (
                anyio.create_task_group() as group,
                scripted_client(
                    respond,
                    limits=LIMITS,
                    max_bytes=_MAX_BYTES,
                    input_handler=(asking := Elicitations("s", group)),
                ) as (client, _),
            ):
                await _use(client, asking, tally)
    tally.cases += 1


async def _over_http(respond: Callable[[Fields], list[object]], tally: Tally) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message = cast(Fields, msgspec.json.decode(await request.read()))
        body = b"".join(cast("list[bytes]", respond(message)))
        headers = {"Mcp-Session-Id": "s"}
        if len(body) % 3 == 0:
            events = b"".join(b"id: 1\ndata: " + line + b"\n\n" for line in body.splitlines())
            headers["Content-Type"] = "text/event-stream"
            return web.Response(body=events, headers=headers)
        status = 200 if len(body) % 7 else 202
        headers["Content-Type"] = "application/json"
        return web.Response(body=body, status=status, headers=headers)

    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/mcp", handle)
    async with (
        anyio.create_task_group() as group,
        TestServer(app) as server,
        http_client(
            str(server.make_url("/mcp")),
            limits=LIMITS,
            input_handler=(asking := Elicitations("s", group)),
        ) as client,
    ):
        await _use(client, asking, tally)


async def _call_tool(client: McpClient, asking: Elicitations, number: int, tally: Tally) -> None:
    """Whatever is asked is answered: with what was asked for, with something else, or not."""
    answers: dict[str, ApprovalAnswered] = {}
    while True:
        call = Call(
            id=f"call_{number}", name="a", input={"x": "1"}, idempotency_key="k", session_id="s",
            thread_id="t", answers=answers,
        )  # fmt: skip
        outcome = await asking.run(
            call,
            lambda show, rounds: client.call_tool("a", {"x": "1"}, progress=show, rounds=rounds),
            lambda _: None,
        )
        if isinstance(outcome, CallResult):
            tool_result(outcome)
            return
        tally.results["asked"] += 1
        for question in outcome:
            id_ = question.approval_id(call.id)
            form: dict[str, object] = {"x": "a", "odd": [None]}
            answers[id_] = ApprovalAnswered(
                approval_id=id_, decision="deny" if len(answers) % 3 == 2 else "allow", form=form
            )


async def _use(client: McpClient, asking: Elicitations, tally: Tally) -> None:
    async def list_tools() -> None:
        _read_tools(await client.list_tools())

    steps: list[Callable[[], Awaitable[object]]] = [
        client.connect,
        list_tools,
        lambda: _call_tool(client, asking, 1, tally),
        lambda: _call_tool(client, asking, 2, tally),
        client.list_resources,
        lambda: client.read_resource("file:///x"),
        client.list_prompts,
        lambda: client.get_prompt("p", {}),
    ]
    for step in steps:
        try:
            await step()
        except McpFailed as failure:
            tally.results["in doubt" if failure.is_in_doubt else "refused"] += 1
        else:
            tally.results["answered"] += 1


def _read_tools(tools: ToolList) -> None:
    for tool in tools.tools:
        definition_text(tool)

    async def never(_: Call, __: str, ___: Progress) -> CallResult:
        raise AssertionError

    server_tools("s", tools, never, refused={})


async def play(seeds: range, tally: Tally, until: float = float("inf")) -> None:
    """Several at a time: most of a case is silence."""
    waiting = iter(seeds)

    async def play_some() -> None:
        for seed in waiting:
            if time.monotonic() > until:
                return
            era: Era = "modern" if seed % 2 else "legacy"
            await play_case(seed, era, "http" if seed % 8 > 5 else "stdio", tally)

    async with anyio.create_task_group() as group:
        for _ in range(_AT_A_TIME):
            group.start_soon(play_some)


async def main(seconds: float, seed: int) -> None:
    tally, sizes, peaks = Tally(), list[int](), list[int]()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await play(range(seed, seed + 500), tally, until)
        seed += 500
        gc.collect()
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE >> 20)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
    sys.stdout.write(f"{tally.cases:,} cases, {dict(tally.results)}\n")
    sys.stdout.write(f"MB after each 500: {sizes}\nMB at most until then: {peaks}\n")


if __name__ == "__main__":
    anyio.run(main, float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
