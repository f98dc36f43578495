"""Sessions as lines, what changed, logs in windows, and the sign-in of browsers."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from tests.api.whole_api import Whole, whole

from mainspring.core.content import TextBlock
from mainspring.core.events import AgentMessage, KnownPayload, UserMessage
from mainspring.core.sender import Sender
from mainspring.log.session_lease import hold_session

PERSON = Sender(kind="person", id="key_test")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Whole]:
    async with whole(tmp_path) as made:
        yield made


async def get(api: Whole, path: str) -> Any:  # noqa: ANN401 (JSON)
    answer = await api.ask("GET", path, key=api.keys["acme", "viewer"])
    assert answer.status == 200, answer.body
    return answer.json


async def say(api: Whole, *texts: str, tenant: str = "acme") -> str:
    """A session of this tenant whose agent has said these texts."""
    ids = api.ids[tenant]
    made = await api.make(
        tenant, "/v1/sessions", {"agent": ids["agent_id"], "environment_id": ids["environment_id"]}
    )
    if texts:
        said = [AgentMessage(content=(TextBlock(text),)) for text in texts]
        await _append(api, made["id"], *said)
    return made["id"]


async def test_a_log_is_read_backwards_in_windows_without_gaps(api: Whole):
    session_id = await say(api, *(f"text {number}" for number in range(30)))
    seen: list[int] = []
    before = ""
    while True:
        window = await get(api, f"/v1/sessions/{session_id}/log?limit=7{before}")
        numbers = [event["seq"] for event in window["data"]]
        seen = numbers + seen
        if not window["has_before"]:
            break
        before = f"&before={numbers[0]}"
    assert seen == list(range(1, 32))
    after = await get(api, f"/v1/sessions/{session_id}/log?after=28&limit=2")
    assert [event["seq"] for event in after["data"]] == [29, 30]
    assert after["has_after"]


async def test_a_window_is_bounded_in_bytes_and_long_texts_are_cut(api: Whole):
    session_id = await say(api, "x" * 50_000, *("y" * 1500 for _ in range(100)))
    answer = await api.ask(
        "GET", f"/v1/sessions/{session_id}/log?max_bytes=20000", key=api.keys["acme", "viewer"]
    )
    assert len(answer.body) < 25_000
    assert answer.json["has_before"]
    first = (await get(api, f"/v1/sessions/{session_id}/log?after=1&limit=1"))["data"][0]
    assert first["is_cut"]
    assert first["bytes"] > 50_000
    assert len(first["payload"]["content"][0]["text"]) == 2001
    whole_event = await get(api, f"/v1/sessions/{session_id}/log/event?seq=2")
    assert whole_event["content"][0]["text"] == "x" * 50_000


async def test_what_waits_in_the_inbox_is_shown(api: Whole):
    session_id = await say(api, "Hello.")
    waiting = UserMessage(content=(TextBlock("Are you there?"),))
    await api.service.infrastructure.log.submit(session_id, waiting, sender=PERSON)
    window = await get(api, f"/v1/sessions/{session_id}/log")
    assert [item["type"] for item in window["waiting"]] == ["user.message"]


async def test_a_change_is_sent_once_it_happens_and_only_to_its_tenant(api: Whole):
    own = await say(api, "first")
    theirs = await say(api, "other", tenant="rival")
    headers = {"x-api-key": api.keys["acme", "viewer"]}
    with anyio.fail_after(60):
        async with api.http.get("/v1/mainspring/changes/stream", headers=headers) as response:
            messages = _messages(response)
            hello = await anext(messages)
            assert hello["sessions"] == []
            await _append(api, theirs, AgentMessage(content=(TextBlock("quiet"),)))
            await _append(api, own, AgentMessage(content=(TextBlock("loud"),)))
            changed = await anext(messages)
    assert [line["id"] for line in changed["sessions"]] == [own]
    assert changed["cursor"] >= hello["cursor"]
    again = await get(api, f"/v1/mainspring/changes?after={hello['cursor']}")
    assert own in [line["id"] for line in again["sessions"]]
    assert theirs not in str(again)


async def _append(api: Whole, session_id: str, *payloads: KnownPayload) -> None:
    async with hold_session(api.service.infrastructure.log, session_id) as writer:
        await writer.append(*payloads)


async def _messages(response: aiohttp.ClientResponse) -> AsyncGenerator[Any]:
    async for line in response.content:
        if line.startswith(b"data: ") and b'"cursor"' in line:
            yield msgspec.json.decode(line.removeprefix(b"data: "))


async def test_search_finds_own_sessions_only(api: Whole):
    own = await say(api, "a heron on the roof")
    await say(api, "a heron in the garden", tenant="rival")
    found = await get(api, "/v1/mainspring/search?query=heron")
    assert [item["session"]["id"] for item in found["data"]] == [own]
    inside = await get(api, f"/v1/sessions/{own}/log/search?query=roof")
    assert [item["seq"] for item in inside["data"]] == [2]


async def test_lines_have_the_first_message_as_title(api: Whole):
    session_id = await say(api)
    await _append(api, session_id, UserMessage(content=(TextBlock("Mend the\nroof."),)))
    lines = (await get(api, "/v1/mainspring/sessions"))["data"]
    line = next(item for item in lines if item["id"] == session_id)
    assert line["title"] == "Mend the roof."
    assert (line["activity"], line["waits_for"]) == ("waits for its first message", "message")


async def test_a_cookie_stands_for_its_key_until_it_is_signed_out(api: Whole):
    async with aiohttp.ClientSession(api.url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        key = {"x-api-key": api.keys["acme", "user"]}
        async with browser.post("/v1/mainspring/sign_in", headers=key) as response:
            assert response.status == 200
            cookie = response.cookies["mainspring_session"]
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
            assert api.keys["acme", "user"] not in await response.text() + cookie.value
        async with browser.get("/v1/mainspring/me") as response:
            me = await response.json()
        assert (me["role"], me["tenant_id"]) == ("user", "acme")
        assert await _status(browser, "POST", "/v1/mainspring/sign_out") == 403
        wrong = {"x-csrf-token": "0" * 64}
        assert await _status(browser, "POST", "/v1/mainspring/sign_out", wrong) == 403
        foreign = {"sec-fetch-site": "cross-site"}
        assert await _status(browser, "GET", "/v1/mainspring/me", foreign) == 403
        token = {"x-csrf-token": me["csrf_token"]}
        assert await _status(browser, "POST", "/v1/mainspring/keys", token) == 403
        browser.cookie_jar.update_cookies({"mainspring_session": cookie.value})
        assert await _status(browser, "POST", "/v1/mainspring/sign_out", token) == 200
        browser.cookie_jar.update_cookies({"mainspring_session": cookie.value})
        assert await _status(browser, "GET", "/v1/mainspring/me") == 401


async def _status(
    browser: aiohttp.ClientSession, method: str, path: str, headers: dict[str, str] | None = None
) -> int:
    async with browser.request(method, path, headers=headers or {}) as response:
        return response.status
