"""Hooks over HTTP, asked of a real server on this machine."""

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest
from aiohttp import web
from tests.hooks.hook_project import Project, at, before, configured

from mainspring.core.hook import HookResult

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def run_server(serve: Serve) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def run_http_hook(project: Project, url: str, **more: object) -> HookResult:
    handler = {"type": "http", "url": url, **more}
    with anyio.fail_after(60):
        return await project.runner(configured("PreToolUse", handler)).run(before(command="ls"))


async def test_a_server_gets_the_event_and_can_deny(project: Project):
    heard: list[object] = []

    async def serve(request: web.Request) -> web.Response:
        heard.append((request.method, request.content_type, await request.json()))
        return web.json_response({"decision": "block", "reason": "not today"})

    async with run_server(serve) as url:
        hook_result = await run_http_hook(project, f"{url}/hook")
    assert (hook_result.permission, hook_result.reason) == ("deny", "not today")
    told = {**project.told(), "hook_event_name": "PreToolUse", "tool_name": "Bash"}
    told |= {"tool_input": {"command": "ls"}, "tool_use_id": "toolu_1"}
    assert heard == [("POST", "application/json", told)]


def run_constant_server(response: Callable[[], web.Response]) -> AbstractAsyncContextManager[str]:
    """A server that says the same to everybody."""

    async def serve(_: web.Request) -> web.Response:
        return response()

    return run_server(serve)


async def test_an_empty_response_has_no_effect(project: Project):
    async with run_constant_server(lambda: web.Response(status=204)) as url:
        hook_result = await run_http_hook(project, url)
    assert (hook_result.permission, hook_result.blocked) == (None, False)


async def test_a_text_response_is_context_for_session_start(project: Project):
    async with run_constant_server(lambda: web.Response(text="read this")) as url:
        runner = project.runner(configured("SessionStart", {"type": "http", "url": url}))
        assert (await runner.run(at("SessionStart"))).context == ("read this",)


async def test_only_allowed_variables_are_expanded_in_headers(project: Project):
    heard: list[str | None] = []
    project.environment |= {"TOKEN": "t0", "OTHER": "o0"}

    async def serve(request: web.Request) -> web.Response:
        heard.extend(request.headers.get(name) for name in ("authorization", "x-other", "x-both"))
        return web.Response()

    headers = {
        "Authorization": "Bearer $TOKEN",
        "X-Other": "a${OTHER}b",
        "X-Both": "$OTHER${TOKEN}$",
    }
    async with run_server(serve) as url:
        await run_http_hook(project, url, headers=headers, allowedEnvVars=["TOKEN", "MISSING"])
    assert heard == ["Bearer t0", "ab", "t0$"]


async def test_an_invalid_header_fails_without_being_shown(project: Project):
    project.environment["TOKEN"] = "geheim\r\nX-Injected: 1"
    headers = {"Authorization": "$TOKEN"}
    result = await run_http_hook(
        project, "http://127.0.0.1:9/", headers=headers, allowedEnvVars=["TOKEN"]
    )
    assert result.permission == "deny"
    assert "geheim" not in repr(result)


@pytest.mark.parametrize("status", [302, 401, 404, 500, 503])
async def test_an_error_status_denies(project: Project, status: int):
    asked_for: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        asked_for.append(request.path)
        body = json.dumps({"decision": "approve"})
        return web.Response(status=status, headers={"location": "/elsewhere"}, text=body)

    async with run_server(serve) as url:
        hook_result = await run_http_hook(project, f"{url}/hook")
    assert hook_result.permission == "deny"
    assert f"answered with status {status}" in (hook_result.reason or "")
    assert asked_for == ["/hook"]


async def test_an_unreachable_server_denies(project: Project):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        hook_result = await run_http_hook(
            project, f"http://127.0.0.1:{taken.getsockname()[1]}/?key=geheim"
        )
    assert hook_result.permission == "deny"
    assert "could not be asked" in (hook_result.reason or "")
    assert "geheim" not in repr(hook_result)


async def test_a_server_that_never_answers_denies(project: Project):
    async def serve(_: web.Request) -> web.Response:
        await anyio.sleep_forever()
        return web.Response()

    async with run_server(serve) as url:
        hook_result = await run_http_hook(project, url, timeout=0.2)
    assert (hook_result.permission, hook_result.hook_runs[0].outcome) == ("deny", "timed_out")


async def test_an_endless_response_denies(project: Project):
    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"{" * 65_536)
        except ConnectionError:
            return response

    async with run_server(serve) as url:
        hook_result = await run_http_hook(project, url)
    assert hook_result.permission == "deny"
    assert "more than 1000000 bytes" in (hook_result.reason or "")


@pytest.mark.parametrize("body", [b"{", b'{"decision": 1}', b"\x80{", b'{"decision": "\xff"}'])
async def test_a_malformed_json_response_denies(project: Project, body: bytes):
    async with run_constant_server(
        lambda: web.Response(body=body, content_type="application/json")
    ) as url:
        hook_result = await run_http_hook(project, url)
    assert hook_result.blocked is body.startswith(b"{")
