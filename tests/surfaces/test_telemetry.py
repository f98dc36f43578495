"""Traces, metrics and crashes as ways out for secrets. Each attempt puts other secrets into another
place of a session whose telemetry is on, with the messages captured: none may reach the
collector."""

import json
import logging
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from tests.session_e2e.test_secrets import find_secrets
from tests.tools.test_web_fetch import FakeWeb
from tests.vault.modern import modern
from tests.wiring.test_telemetry import run

from mainspring import Agent, open_runtime, tool
from mainspring.capabilities.tools.web_fetch import web_fetch
from mainspring.core.tool import Tool
from mainspring.edges.api.app import http_server
from mainspring.service.telemetry.metrics import Metrics
from mainspring.service.telemetry.telemetry_setup import CAPTURE_VARIABLE, open_telemetry
from mainspring.testing import Scripted, calls, says

PLACES = (
    *("message", "reply", "argument", "result", "error", "exception", "page", "page_title"),
    *("unknown_tool", "description", "second_message", "final"),
)


def kinds_of(place: str) -> dict[str, tuple[str, str]]:
    """Each place has other secrets: a tenth of the kinds, so that none is cut."""
    kinds = [*modern(300 + PLACES.index(place)).items()]
    return dict(kinds[PLACES.index(place) :: len(PLACES)])


def text_of(place: str) -> str:
    return "\n\n".join(text for text, _ in kinds_of(place).values()) + "\n"


@asynccontextmanager
async def collector(status: int = 200) -> AsyncGenerator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.Response(status=status, content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/{anything:.*}", take)
    async with http_server(app) as url:
        yield url, bodies


@tool
def show(place: str) -> str:
    """Show a text."""
    return text_of(place)


@tool
def fail(place: str) -> str:
    """Fail with a text."""
    raise ValueError(text_of(place))


def fetching(html: str) -> Tool:
    return web_fetch(FakeWeb(html.encode()), max_bytes=1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 500])
async def test_no_secret_of_a_session_is_in_its_telemetry(
    status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    html = f"<title>{text_of('page_title')}</title><p>{text_of('page')}</p>"
    agent = Agent(
        name="clerk", instructions=text_of("description"), tools=[show, fail, fetching(html)]
    )
    script = Scripted(
        says(text_of("reply")) + calls("show", place="result"),
        calls("show", place="argument", text=text_of("argument")),
        calls("fail", place="exception"),
        calls("web_fetch", url="https://a.test/?q=1"),
        calls(f"no_{next(iter(kinds_of('unknown_tool').values()))[1][:40]}"),
        says(text_of("final")),
    )
    header = "Bearer otlp-header-value-0123456789abcdef"
    async with collector(status) as (url, bodies):
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={header}",
            CAPTURE_VARIABLE: "true",
        }
        with anyio.fail_after(60):
            async with open_runtime(store=str(tmp_path / "log.db")) as runtime:
                runtime.models.put(agent.model, script)
                session = await runtime.start(agent, text_of("message"))
                await session.send(text_of("second_message"))
                async with open_telemetry(
                    runtime.log, Metrics(version="1"), environment=environment, version="1"
                ) as watching:
                    await run(session, watching.run_observers)
    sent = b"\n".join(bodies)
    assert b"gen_ai" in sent, "the messages were not captured"
    assert b"[redacted:" in sent
    logged = caplog.text.encode()
    found = {
        f"{place}: {kind}"
        for place in PLACES
        for kind, (_, secret) in kinds_of(place).items()
        if find_secrets(sent + logged, [secret, json.dumps(secret)[1:-1]])
    }
    assert not found, "\n".join(sorted(found))
    assert header.encode() not in sent + logged


def test_a_process_that_crashes_leaves_no_memory_on_the_disk() -> None:
    """A core dump has the vault's key and every key of a provider."""
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (1_000_000, resource.RLIM_INFINITY))\n"
        "sys.argv = ['mainspring', 'validate', '--help']\n"
        "from mainspring.edges.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1] == "0", done.stderr
