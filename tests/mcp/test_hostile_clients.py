"""What a hostile client tries: each attempt is refused, and the server goes on."""

import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO

import aiohttp
import anyio
import msgspec
import pytest
from tests.mcp.conformance_server import ConformanceFeatures, conformance_server

from mainspring.capabilities.mcp.protocol.messages import META
from mainspring.capabilities.mcp.server.connection import Connections, McpConnection
from mainspring.capabilities.mcp.server.refusals import RequestRefused
from mainspring.capabilities.mcp.server.request_state import (
    RequestState,
    StateSigner,
    request_digest,
)
from mainspring.edges.mcp.http_endpoint import HostRules, HttpTimes

MODERN = "2026-07-28"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
META_FIELDS: dict[str, object] = {
    f"{META}protocolVersion": MODERN,
    f"{META}clientCapabilities": {"elicitation": {}},
}


@dataclass
class Attacker:
    url: str
    http: aiohttp.ClientSession

    async def post(
        self, body: object, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        every = {**ACCEPT, **(headers or {})}
        async with self.http.post(self.url, data=BytesIO(data), headers=every) as response:
            return response.status, await response.read(), response.headers

    async def call(
        self, method: str, params: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        every = {**modern_headers(method, params), **(headers or {})}
        status, answer, _ = await self.post(request(method, params), every)
        return status, answer

    async def initialize(self) -> str:
        params: dict[str, object] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
        }
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        status, _, headers = await self.post(body)
        assert status == 200
        return headers["Mcp-Session-Id"]


def request(method: str, params: Mapping[str, object], id_: object = 1) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": id_,
        "method": method,
        "params": {**params, "_meta": META_FIELDS},
    }


def modern_headers(method: str, params: Mapping[str, object]) -> dict[str, str]:
    name = params.get("name") or params.get("uri")
    mirrored = {} if name is None else {"Mcp-Name": str(name)}
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **mirrored}


@asynccontextmanager
async def run_attacked_server(times: HttpTimes | None = None) -> AsyncGenerator[Attacker, None]:
    async with conformance_server(times) as url, aiohttp.ClientSession() as http:
        attacker = Attacker(url, http)
        with anyio.fail_after(60):
            yield attacker
        status, answer = await attacker.call("tools/call", {"name": "test_simple_text"})
        assert (status, b"simple text response" in answer) == (200, True), "it does not go on"


LIST = request("tools/list", {})
LIST_HEADERS = modern_headers("tools/list", {})
CALL = {"name": "test_simple_text"}


MALFORMED: list[tuple[object, dict[str, str], int]] = [
    (LIST, {"Host": "evil.example.com"}, 403),
    (LIST, {"Host": "localhost.evil.com"}, 403),
    (LIST, {"Host": "localhost@evil.com"}, 403),
    (LIST, {"Origin": "http://evil.example.com"}, 403),
    (LIST, {"Origin": "http://localhost.evil.com"}, 403),
    (LIST, {"Origin": "http://localhost@evil.com"}, 403),
    (LIST, {"Origin": "null"}, 403),
    (LIST, {"Origin": "file://"}, 403),
    (LIST, {"Content-Type": "text/plain"}, 415),
    (LIST, {"Accept": "text/html"}, 406),
    ([LIST, LIST], {}, 400),
    ([], {}, 400),
    (b"", {}, 400),
    (b"{", {}, 400),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}', {}, 400),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}', {}, 400),
    (b"[" * 100_000, {}, 400),
    (b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 100_000, {}, 400),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', {}, 400),
    (b'{"id":1,"params":"' + b"x" * (5 << 20) + b'"}', {}, 413),
    ({**LIST, "id": "x" * 10_000}, {}, 400),
    (request("tools/call", CALL), {}, 400),
    (LIST, {"Mcp-Method": "tools/call"}, 400),
    (LIST, {"MCP-Protocol-Version": "2025-11-25"}, 400),
    (LIST, {"MCP-Protocol-Version": "9999-01-01"}, 400),
    ({**LIST, "params": {}}, {}, 400),
    ({**LIST, "params": []}, {}, 400),
    (
        {**LIST, "params": {"_meta": {**META_FIELDS, f"{META}protocolVersion": "2025-11-25"}}},
        {},
        400,
    ),
    (request("initialize", {}), {"Mcp-Method": "initialize"}, 404),
    (request("resources/subscribe", {"uri": "x"}), {"Mcp-Method": "resources/subscribe"}, 404),
    (request("admin/keys", {}), {"Mcp-Method": "admin/keys"}, 404),
    (request("__init__", {}), {"Mcp-Method": "__init__"}, 404),
    ({"jsonrpc": "2.0", "id": "mainspring-1", "result": {}}, {}, 400),
    (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":'
        + msgspec.json.encode(LIST["params"])
        + b"}",
        {},
        400,
    ),
]


async def test_malformed_requests_are_refused():
    async with run_attacked_server() as attacker:
        wrong = [
            (body, headers, got)
            for body, headers, status in MALFORMED
            if (got := (await attacker.post(body, {**LIST_HEADERS, **headers}))[0]) != status
        ]
    assert wrong == []


MISMATCHES: list[tuple[dict[str, object], dict[str, str]]] = [
    ({"name": "test_simple_text"}, {"Mcp-Name": "test_error_handling"}),
    ({"name": "test_simple_text"}, {"Mcp-Name": "=?base64?!!!?="}),
    ({"name": "test_custom_headers", "arguments": {"region": "eu"}}, {}),
    (
        {"name": "test_custom_headers", "arguments": {"region": "eu"}},
        {"Mcp-Param-Region": "us"},
    ),
    ({"name": "test_custom_headers", "arguments": {}}, {"Mcp-Param-Region": "us"}),
]


async def test_headers_that_contradict_the_body_are_refused():
    async with run_attacked_server() as attacker:
        for params, headers in MISMATCHES:
            status, answer = await attacker.call("tools/call", params, headers)
            assert (status, b"-32020" in answer) == (400, True), params


async def test_a_forged_cursor_is_refused():
    async with run_attacked_server() as attacker:
        for cursor in ("", "x", "LTE=", "OTk5OTk5OTk5OTk5", "MTAwMDAw", "🙂"):
            _, answer = await attacker.call("tools/list", {"cursor": cursor})
            assert b"-32602" in answer, cursor


async def test_a_session_needs_its_own_id():
    async with run_attacked_server() as attacker:
        session = await attacker.initialize()
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        statuses = [
            (await attacker.post(ping, headers))[0]
            for headers in (
                {"Mcp-Session-Id": session},
                {},
                {"Mcp-Session-Id": "guessed"},
                {"Mcp-Session-Id": session + "x"},
            )
        ]
        again, _, _ = await attacker.post(
            {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {"protocolVersion": "x"}},
            {"Mcp-Session-Id": session},
        )
        async with attacker.http.delete(attacker.url, headers={"Mcp-Session-Id": session}) as ended:
            assert ended.status == 204
        after, _, _ = await attacker.post(ping, {"Mcp-Session-Id": session})
    assert statuses == [200, 400, 404, 404]
    assert again == 200, "a new session, not the old one again"
    assert after == 404


def test_a_session_is_invisible_to_other_callers():
    connections = Connections(new_id=lambda: "known", monotonic=lambda: 0.0)
    id_ = connections.add(McpConnection(caller="ann", features=ConformanceFeatures()))
    assert connections.find(id_, "ben") is None
    assert not connections.end(id_, "ben")
    assert connections.find(id_, "ann") is not None


def test_a_caller_with_many_sessions_loses_its_oldest_ones():
    numbers = iter(range(10_000))
    connections = Connections(
        new_id=lambda: str(next(numbers)), monotonic=lambda: float(next(numbers))
    )
    theirs = connections.add(McpConnection(caller="ann", features=ConformanceFeatures()))
    first, *_ = [
        connections.add(McpConnection(caller="ben", features=ConformanceFeatures()))
        for _ in range(101)
    ]
    assert connections.find(theirs, "ann") is not None
    assert connections.find(first, "ben") is None


async def test_a_request_id_in_use_is_refused():
    async with run_attacked_server() as attacker:
        session = {"Mcp-Session-Id": await attacker.initialize()}
        wait = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "test_wait"}}
        async with anyio.create_task_group() as group:
            group.start_soon(attacker.post, wait, session)
            status, answer = 200, b""
            while status == 200:  # until the first one has arrived
                status, answer, _ = await attacker.post(
                    {**wait, "method": "ping", "params": {}}, session
                )
            cancelled = {"method": "notifications/cancelled", "params": {"requestId": 7}}
            await attacker.post({"jsonrpc": "2.0", **cancelled}, session)
            assert (status, b"-32600" in answer) == (400, True)


async def test_an_answer_to_a_question_of_another_session_is_refused():
    async with run_attacked_server() as attacker:
        asked, other = await attacker.initialize(), await attacker.initialize()
        params = {"name": "test_elicitation", "arguments": {"message": "who?"}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = {"jsonrpc": "2.0", "id": "mainspring-1", "result": {"action": "accept"}}
        async with attacker.http.post(
            attacker.url, json=call, headers={**ACCEPT, "Mcp-Session-Id": asked}
        ) as stream:
            await stream.content.readuntil(b"\n\n")
            foreign, _, _ = await attacker.post(answer, {"Mcp-Session-Id": other})
            own, _, _ = await attacker.post(answer, {"Mcp-Session-Id": asked})
            rest = await stream.read()
    assert (foreign, own) == (400, 202)
    assert b"action=accept" in rest


async def test_concurrent_requests_of_a_caller_are_limited():
    async with run_attacked_server() as attacker:
        statuses: list[int] = []
        six_refused = anyio.Event()

        async def wait() -> None:
            body = request("tools/call", {"name": "test_wait"})
            headers = {**ACCEPT, **modern_headers("tools/call", {"name": "test_wait"})}
            async with attacker.http.post(attacker.url, json=body, headers=headers) as response:
                statuses.append(response.status)
                if len(statuses) == 6:
                    six_refused.set()
                await response.read()

        async with anyio.create_task_group() as group:
            for _ in range(70):
                group.start_soon(wait)
            await six_refused.wait()
            assert set(statuses) == {429}
            group.cancel_scope.cancel()
        status = 429
        while status == 429:  # until it has seen that they are gone
            status, _ = await attacker.call("tools/list", {})
        assert status == 200


async def test_a_body_sent_too_slowly_times_out():
    async def slowly() -> AsyncGenerator[bytes, None]:
        yield b"{"
        await anyio.sleep(30)

    async with (
        run_attacked_server(HttpTimes(body_seconds=0.2)) as attacker,
        attacker.http.post(
            attacker.url, data=slowly(), headers={**ACCEPT, **LIST_HEADERS}
        ) as response,
    ):
        assert response.status == 408


async def test_a_second_stream_and_a_stream_without_session_are_refused():
    async with run_attacked_server() as attacker:
        headers = {"Accept": "text/event-stream"}
        session = {**headers, "Mcp-Session-Id": await attacker.initialize()}
        async with (
            attacker.http.get(attacker.url, headers=session) as first,
            attacker.http.get(attacker.url, headers=session) as second,
        ):
            statuses = [first.status, second.status]
        async with attacker.http.get(attacker.url, headers=headers) as without:
            statuses.append(without.status)
    assert statuses == [200, 409, 405]


STATE_TOOL: dict[str, object] = {
    "name": "test_input_required_result_request_state",
    "arguments": dict[str, object](),
}


async def test_a_changed_or_foreign_request_state_is_refused():
    async with run_attacked_server() as attacker:
        _, answer = await attacker.call("tools/call", STATE_TOOL)
        state: str = msgspec.json.decode(answer)["result"]["requestState"]
        content = bytearray(base64.urlsafe_b64decode(state))
        content[-1] ^= 1
        answers = {"confirm": {"action": "accept", "content": {"ok": True}}}
        attempts: list[Mapping[str, object]] = [
            {**STATE_TOOL, "requestState": base64.urlsafe_b64encode(content).decode()},
            {**STATE_TOOL, "requestState": state[:-8]},
            {**STATE_TOOL, "requestState": ""},
            {**STATE_TOOL, "requestState": "🙂"},
            {**STATE_TOOL, "requestState": "A" * 300_000},
            {**STATE_TOOL, "arguments": {"other": 1}, "requestState": state},
            {"name": "test_input_required_result_tampered_state", "requestState": state},
        ]
        for params in attempts:
            _, refused = await attacker.call("tools/call", {**params, "inputResponses": answers})
            assert b"-32602" in refused
        own = {**STATE_TOOL, "requestState": state, "inputResponses": answers}
        assert b"state-ok" in (await attacker.call("tools/call", own))[1]


def test_a_request_state_is_valid_for_its_caller_and_a_limited_time():
    now = [0.0]
    signer = StateSigner(b"k" * 32, seconds_now=lambda: now[0])
    about = request_digest("tools/call", "x", {})
    text = signer.sign(RequestState(note=b"n"), caller="ann", request=about)
    assert signer.verify(text, caller="ann", request=about).note == b"n"
    with pytest.raises(RequestRefused):
        signer.verify(text, caller="ben", request=about)
    with pytest.raises(RequestRefused):
        StateSigner(b"other", seconds_now=lambda: 0.0).verify(text, caller="ann", request=about)
    now[0] = 25 * 3600
    with pytest.raises(RequestRefused, match="too old"):
        signer.verify(text, caller="ann", request=about)


def test_an_origin_can_be_allowed_by_name():
    rules = HostRules(hosts=None, origins=frozenset({"https://app.example.com"}))
    assert rules.refusal({"Host": "x", "Origin": "https://app.example.com"}) is None
    assert rules.refusal({"Host": "x", "Origin": "https://app.example.com.evil.com"})
    assert rules.refusal({"Host": "x", "Origin": "http://app.example.com"})
    assert HostRules().refusal({}), "a request must say whom it is for"
