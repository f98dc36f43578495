"""What goes wrong between us and a provider, over a real connection, for every adapter."""

import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

import anyio
import pytest
from tests.at_once import at_once
from tests.providers import wire
from tests.providers.loopback import Loopback, Responder, event, never, says, streams
from tests.providers.wire import asks, collect, drain

from mainspring.capabilities.providers.adapter import HttpModel
from mainspring.capabilities.providers.anthropic.client import ANTHROPIC
from mainspring.capabilities.providers.http_call import HttpLimits
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.openai_chat.client import CHAT
from mainspring.capabilities.providers.openai_responses.client import RESPONSES
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, ProviderFailed, ProviderFailure
from mainspring.core.model import Model, Request, Stalled, TextDelta

Make: TypeAlias = Callable[[HttpClient, str], Model]

KEY = "sk-very-secret"
NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
MODELS: dict[str, Make] = {
    "anthropic": lambda http, url: HttpModel(http, ANTHROPIC, key=f" {KEY}\n", url=url),
    "chat": lambda http, url: HttpModel(http, CHAT, key=KEY, url=url, provider="chat"),
    "responses": lambda http, url: HttpModel(http, RESPONSES, key=KEY, url=url),
}
GOOD: dict[str, list[bytes]] = {
    "anthropic": wire.message(wire.text(0, "fine")),
    "chat": wire.chat({"content": "fine"}),
    "responses": wire.response(
        wire.response_text("fine"),
        deltas=[{"type": "response.output_text.delta", "output_index": 0, "delta": "fine"}],
    ),
}


@pytest.fixture(params=MODELS)
def api(request: pytest.FixtureRequest) -> str:
    return request.param


async def failure(
    api: str,
    server: Loopback,
    responder: Responder,
    *,
    limits: HttpLimits | None = None,
    request: Request | None = None,
) -> ProviderFailed:
    server.answers(responder)
    async with HttpClient(limits, clock=lambda: NOW) as http:
        model = MODELS[api](http, server.url)
        with pytest.raises(ProviderFailed) as failed:
            await drain(model.stream(request or asks()))
    assert KEY not in str(failed.value)
    return failed.value


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"error": {"type": "authentication_error", "message": "bad key"}}, "unauthorized"),
        (403, {"error": {"type": "permission_error", "message": "revoked"}}, "forbidden"),
        (404, {"error": {"type": "not_found_error", "message": "no model"}}, "not_found"),
        (402, {"error": {"message": "pay"}}, "billing"),
        (429, {"error": {"type": "rate_limit_error", "message": "slow"}}, "rate_limited"),
        (429, {"error": {"code": "insufficient_quota", "message": "quota"}}, "billing"),
        (529, {"type": "error", "error": {"type": "overloaded_error"}}, "overloaded"),
        (503, "upstream gone", "overloaded"),
        (500, {"error": {"type": "api_error", "message": "oops"}}, "server"),
        (500, {"error": {"type": "overloaded_error", "message": "busy"}}, "overloaded"),
        (502, "<html>bad gateway</html>", "server"),
        (408, "", "timeout"),
        (
            400,
            {"error": {"message": "prompt is too long: 210000 tokens > 200000"}},
            "prompt_too_long",
        ),
        (400, {"error": {"message": "maximum context length is 8192"}}, "prompt_too_long"),
        (400, {"error": {"code": "context_length_exceeded", "message": "x"}}, "prompt_too_long"),
        (400, {"error": "the input exceeds the available context size"}, "prompt_too_long"),
        (413, {"error": {"type": "request_too_large", "message": "too large"}}, "prompt_too_long"),
        (400, {"error": {"message": "image exceeds 5 MB maximum"}}, "media_too_large"),
        (400, {"error": {"message": "Your credit balance is too low"}}, "billing"),
        (
            400,
            [{"error": {"status": "INVALID_ARGUMENT", "message": "API key not valid"}}],
            "unauthorized",
        ),
        (400, {"error": {"type": "invalid_request_error", "message": "odd"}}, "invalid_request"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "invalid_request"),
        (307, "elsewhere", "invalid_request"),
    ],
)
async def test_every_status_has_its_error_kind(
    server: Loopback, status: int, body: object, kind: ProviderFailure
):
    for api in MODELS:
        failed = await failure(api, server, says(status, body))
        assert (failed.kind, str(status) in str(failed)) == (kind, True), str(failed)


@pytest.mark.parametrize(
    ("header", "value", "seconds"),
    [
        ("retry_after", "7", 7.0),
        ("retry_after", "1.5", 1.5),
        ("retry_after", "Sun, 15 Nov 2026 12:00:30 GMT", 30.0),
        ("retry_after", "Sun, 15 Nov 2026 11:00:00 GMT", 0.0),
        ("retry_after", "soon", None),
        ("retry_after", "nan", None),
        ("retry_after_ms", "250", 0.25),
    ],
)
async def test_retry_after_headers_are_parsed(
    server: Loopback, header: str, value: str, seconds: float | None
):
    failed = await failure("anthropic", server, says(429, {}, **{header: value}))
    assert (failed.kind, failed.retry_after_seconds) == ("rate_limited", seconds)


async def test_an_error_shows_an_excerpt_without_the_key(server: Loopback, api: str):
    body = f"your key {KEY} is \x1b[31mbad " + "x" * 100_000
    failed = await failure(api, server, says(400, body, content_type="text/plain"))
    assert "your key [key] is" in str(failed)
    assert len(str(failed)) < 500
    assert "\x1b" not in str(failed)


async def test_a_web_page_with_status_200_is_malformed(server: Loopback, api: str):
    page = says(200, f"<html>Sign in, {KEY}</html>", content_type="text/html")
    failed = await failure(api, server, page)
    assert failed.kind == "malformed"
    assert "Sign in" in str(failed)


@pytest.mark.parametrize(
    "chunks",
    [
        [b"<html>not a stream</html>"],
        [],
        [b": hello\n\n"],
        [b"data: {nonsense\n\n"],
        [b"data: [1]\n\n"],
    ],
)
async def test_an_unrelated_stream_is_malformed(server: Loopback, api: str, chunks: list[bytes]):
    assert (await failure(api, server, streams(chunks))).kind == "malformed"


@pytest.mark.parametrize("body", ["{", "[]", '{"unrelated": 1}', ""])
async def test_an_unrelated_complete_response_is_malformed(server: Loopback, api: str, body: str):
    failed = await failure(api, server, says(200, body), request=asks(stream=False))
    assert failed.kind == "malformed"


async def test_a_stream_that_ends_early_is_a_connection_error(server: Loopback, api: str):
    whole = b"".join(GOOD[api])
    first, end = len(GOOD[api][0]), whole.index(b"fine") + 10
    for cut in range(first, end, 13):
        assert (await failure(api, server, streams([whole[:cut]]))).kind == "connection"


async def test_a_connection_reset_during_the_stream_is_a_connection_error(
    server: Loopback, api: str
):
    assert (await failure(api, server, streams(GOOD[api][:2], then="reset"))).kind == "connection"


async def test_a_finished_reply_survives_a_connection_reset(server: Loopback, http: HttpClient):
    server.answers(streams(GOOD["chat"][:-2], then="reset"))
    _, reply = await collect(MODELS["chat"](http, server.url))
    assert reply.content == (TextBlock("fine"),)
    assert reply.usage_is_estimated


@pytest.mark.parametrize(
    ("api_", "error", "kind"),
    [
        (
            "anthropic",
            {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
            "overloaded",
        ),
        ("anthropic", {"type": "error", "error": {"type": "api_error", "message": "x"}}, "server"),
        ("chat", {"error": {"code": 502, "message": "upstream"}}, "server"),
        ("chat", {"error": {"type": "rate_limit_exceeded", "message": "x"}}, "rate_limited"),
        ("chat", {"error": "died"}, "server"),
        (
            "responses",
            {"type": "error", "code": "rate_limit_exceeded", "message": "x"},
            "rate_limited",
        ),
        (
            "responses",
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "x"}},
            },
            "server",
        ),
    ],
)
async def test_an_error_event_in_the_stream_has_its_kind_and_earlier_deltas_are_kept(
    server: Loopback, http: HttpClient, api_: str, error: object, kind: ProviderFailure
):
    begun = GOOD[api_][: [b"fine" in chunk for chunk in GOOD[api_]].index(True) + 1]
    server.answers(streams([*begun, event(error)]))
    heard: list[object] = []

    async def listen() -> None:
        async for part in MODELS[api_](http, server.url).stream(asks()):
            heard.append(part)

    with pytest.raises(ProviderFailed) as failed:
        await listen()
    assert failed.value.kind == kind
    assert TextDelta("fine") in heard


@pytest.mark.parametrize("pad", [0, 395])
async def test_a_key_repeated_in_an_error_event_is_not_shown(server: Loopback, api: str, pad: int):
    told = {"type": "error", "code": f"bad {KEY}", "message": "x" * pad + KEY}
    failed = await failure(api, server, streams([event({"type": "error", "error": told})]))
    assert KEY[:6] not in str(failed)


TINY = HttpLimits(stall_seconds=0.05, abort_seconds=0.15, whole_seconds=0.1)


@pytest.mark.parametrize("begun", [None, 0, 2])
async def test_a_silent_stream_is_reported_as_stalled_and_then_aborted(
    server: Loopback, api: str, begun: int | None
):
    server.answers(never() if begun is None else streams(GOOD[api][:begun], then="silent"))
    heard: list[object] = []

    async def listen(model: Model) -> None:
        async for part in model.stream(asks()):
            heard.append(part)

    async with HttpClient(TINY) as http:
        with (
            anyio.fail_after(60),
            pytest.raises(ProviderFailed, match=r"nothing came for 0\.15 s") as failed,
        ):
            await listen(MODELS[api](http, server.url))
    assert failed.value.kind == "stalled"
    assert heard[-1] == Stalled(seconds=0.05)


async def test_a_complete_response_that_takes_too_long_is_a_timeout(server: Loopback, api: str):
    for responder in (never(), streams([b"{"], then="silent", content_type="application/json")):
        failed = await failure(api, server, responder, limits=TINY, request=asks(stream=False))
        assert failed.kind == "timeout"


async def test_slow_headers_are_reported_as_stalled_before_the_reply(server: Loopback):
    good = streams(GOOD["anthropic"])

    async def slow(request: object) -> object:
        await anyio.sleep(0.2)
        return await good(request)  # pyright: ignore[reportArgumentType]

    server.answers(slow)  # pyright: ignore[reportArgumentType]
    async with HttpClient(HttpLimits(stall_seconds=0.05, abort_seconds=5)) as http:
        deltas, reply = await collect(MODELS["anthropic"](http, server.url))
    assert deltas == [Stalled(seconds=0.05), TextDelta("fine")]
    assert reply.content == (TextBlock("fine"),)


async def test_an_unreachable_server_is_a_connection_error(http: HttpClient):
    model = MODELS["anthropic"](http, "http://127.0.0.1:1")
    with pytest.raises(ProviderFailed) as failed:
        await collect(model)
    assert failed.value.kind == "refused"


async def test_an_invalid_url_is_an_invalid_request(http: HttpClient):
    with pytest.raises(ProviderFailed) as failed:
        await collect(MODELS["chat"](http, "nonsense"))
    assert failed.value.kind == "invalid_request"


@pytest.mark.parametrize(
    "url", ["http://ada:pa55word@[::1", "ftp://ada:pa55word@models", "ada:pa55/word@models"]
)
async def test_an_invalid_url_is_reported_without_its_password(http: HttpClient, url: str):
    with pytest.raises(ProviderFailed) as failed:
        await collect(MODELS["chat"](http, url))
    assert "pa55" not in "".join(traceback.format_exception(failed.value))


async def test_size_limits_are_enforced(server: Loopback, api: str):
    endless = streams([b"data: " + b"x" * 5000] * 20)
    for limits in (HttpLimits(max_event_bytes=10_000), HttpLimits(max_answer_bytes=10_000)):
        assert (await failure(api, server, endless, limits=limits)).kind == "malformed"


async def test_using_a_client_that_is_not_open_is_explained():
    model = MODELS["anthropic"](HttpClient(), "http://127.0.0.1:1")
    with pytest.raises(InvalidInput, match="not open"):
        await collect(model)


async def test_consecutive_calls_share_a_connection(server: Loopback, http: HttpClient, api: str):
    server.answers(streams(GOOD[api]))
    for _ in range(5):
        await collect(MODELS[api](http, server.url))
        await anyio.sleep(0.02)  # the end of an answer is read after its reply
    assert len({received.port for received in server.received}) == 1


async def test_an_abandoned_response_does_not_affect_later_calls(
    server: Loopback, http: HttpClient, api: str
):
    server.answers(never(), streams(GOOD[api][:2], then="silent"), streams(GOOD[api]))
    model = MODELS[api](http, server.url)
    for _ in range(2):
        with anyio.move_on_after(0.05):
            await collect(model)
    _, reply = await collect(model)
    assert reply.content == (TextBlock("fine"),)


async def test_a_ten_megabyte_event_is_read(server: Loopback, http: HttpClient):
    words = "ż" * 5_000_000
    server.answers(streams(wire.message(wire.text(0, words))))
    _, reply = await collect(MODELS["anthropic"](http, server.url))
    assert reply.content == (TextBlock(words),)


async def test_concurrent_calls_do_not_mix(server: Loopback, http: HttpClient):
    server.answers(*(streams(wire.chat({"content": str(number)})) for number in range(20)))
    replies = await at_once(lambda _: collect(MODELS["chat"](http, server.url)), range(20))
    for deltas, reply in replies:
        assert [TextDelta(b.text) for b in reply.content if isinstance(b, TextBlock)] == deltas
    texts = {
        delta.text for deltas, _ in replies for delta in deltas if isinstance(delta, TextDelta)
    }
    assert texts == {str(number) for number in range(20)}
