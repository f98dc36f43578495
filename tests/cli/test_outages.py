"""An outage of the model for four minutes, by a clock 60 times as fast: sessions wait for its end,
finish their work, do nothing twice, and no money stays reserved."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anyio import to_thread
from tests.cli import fast_clock
from tests.cli.conftest import opened
from tests.cli.upstream import ModelServer, Part, Upstream, call
from tests.environ import clean_environ
from tests.service_e2e.service_processes import ADMIN_KEY, begun, upto_idle

from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentToolUse,
    BudgetReserved,
    BudgetSettled,
    SessionFailed,
    StatusIdle,
    StatusRescheduled,
)

PROGRAM = [sys.executable, str(Path(fast_clock.__file__))]
PATIENT = {"MAINSPRING_MODEL_RETRY_SECONDS": "600"}
MINUTE = 60 / fast_clock.SPEED
SECONDS = 60.0


@dataclass
class Outage:
    """Answers once; then 80 seconds of 429, 80 of 529, and 80 in which nobody listens."""

    upstream: Upstream = field(default_factory=Upstream)
    began: float = 0.0
    has_begun: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: dict[str, Any]) -> tuple[Part, ...]:
        if not any(message["role"] == "tool" for message in request["messages"]):
            return (call("write", file_path="made.txt", content="once"),)
        if not self.has_begun.is_set():
            self.began = time.monotonic()
            self.has_begun.set()
        minutes = (time.monotonic() - self.began) / MINUTE
        if minutes < 4:
            return (429,) if minutes < 4 / 3 else (529,)
        return ("all is well",)


@pytest.fixture
def outage() -> Generator[Outage]:
    outage = Outage()
    outage.upstream.otherwise = outage.answer
    with socket.socket() as holder:  # keeps the port while nobody listens
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        port = int(holder.getsockname()[1])
        is_over = threading.Event()
        thread = threading.Thread(target=_serve, args=(outage, port, is_over))
        thread.start()
        outage.upstream.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield outage
        finally:
            is_over.set()
            outage.has_begun.set()
            thread.join()


def _serve(outage: Outage, port: int, is_over: threading.Event) -> None:
    with _listening(outage, port):
        outage.has_begun.wait()
        is_over.wait(8 / 3 * MINUTE)
    is_over.wait(max(0.0, outage.began + 4 * MINUTE - time.monotonic()))
    with _listening(outage, port):
        is_over.wait()


@contextmanager
def _listening(outage: Outage, port: int) -> Generator[None]:
    server = ModelServer(outage.upstream, port, shares_port=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def events_of(store: Path) -> list[Event]:
    async with opened(store) as log:
        [row] = await log.store.sessions(limit=5)
        return await log.read(row.id)


def check_finished(events: list[Event]) -> None:
    payloads = [event.payload for event in events]
    assert [item.reason for item in payloads if isinstance(item, StatusIdle)] == ["completed"]
    assert sum(isinstance(item, AgentToolUse) for item in payloads) == 1
    reserved = Counter(p.reservation_id for p in payloads if isinstance(p, BudgetReserved))
    settled = Counter(p.reservation_id for p in payloads if isinstance(p, BudgetSettled))
    assert reserved == settled
    assert set(reserved.values()) == {1}


def announcements(events: list[Event]) -> list[str]:
    return [e.payload.error.message for e in events if isinstance(e.payload, SessionFailed)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-p",), ("-p", "--output-format", "stream-json")])
async def test_run_waits_for_the_end_of_an_outage(
    options: tuple[str, ...], outage: Outage, place: Path, store: Path, environ: dict[str, str]
):
    process = subprocess.run(
        [*PROGRAM, "run", *options, "--mode", "acceptEdits", "begin"],
        cwd=place,
        env={**environ, **outage.upstream.variables, **PATIENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert process.returncode == 0, process.stderr
    assert "all is well" in process.stdout
    events = await events_of(store)
    check_finished(events)
    assert announcements(events) == [
        "ollama:test: HTTP 429: as the test says; trying again, 10 times in up to 10 min"
    ]
    if options == ("-p", "--output-format", "stream-json"):
        lines = [json.loads(line) for line in process.stdout.splitlines()]
        retries = [line for line in lines if line.get("subtype") == "api_retry"]
        assert [line["attempt"] for line in retries] == [*range(1, len(retries) + 1)]
        assert retries[0]["error"] == "rate_limit"
    else:
        assert "retrying in 2 s, 2 of 10: HTTP 429: as the test says" in process.stderr
        assert "HTTP 529" in process.stderr
        assert "Connection refused" in process.stderr


@pytest.mark.slow
async def test_chat_waits_for_the_end_of_an_outage(
    outage: Outage, place: Path, store: Path, environ: dict[str, str]
):
    process = subprocess.run(
        [*PROGRAM, "chat", "--mode", "acceptEdits"],
        cwd=place,
        env={**environ, **outage.upstream.variables, **PATIENT},
        input="begin\n",
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert "all is well" in process.stdout
    assert "retrying in 2 s, 2 of 10: HTTP 429: as the test says" in process.stderr
    check_finished(await events_of(store))


@pytest.mark.slow
async def test_ctrl_c_ends_the_waiting_at_once(
    outage: Outage, place: Path, store: Path, environ: dict[str, str]
):
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", "run", "--mode", "acceptEdits", "begin"],
        cwd=place,
        env={**environ, **outage.upstream.variables, **PATIENT},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert any("2 of 10" in line for line in process.stderr)
        process.send_signal(2)
        assert process.wait(SECONDS) == 130
    assert [e.payload.reason for e in await events_of(store) if isinstance(e.payload, StatusIdle)]


@pytest.mark.slow
async def test_a_run_that_is_killed_while_it_waits_is_resumed(
    outage: Outage, place: Path, store: Path, environ: dict[str, str]
):
    env = {**environ, **outage.upstream.variables, **PATIENT}
    command = [*PROGRAM, "run", "--mode", "acceptEdits"]
    with subprocess.Popen([*command, "begin"], cwd=place, env=env) as process:
        outage.has_begun.wait(SECONDS)
        for _ in range(4):
            assert outage.upstream.asked.acquire(timeout=SECONDS)
        process.kill()
    resumed = [*command, "--resume", "last"]
    assert subprocess.run(resumed, cwd=place, env=env, timeout=SECONDS).returncode == 0
    check_finished(await events_of(store))


@contextmanager
def served(folder: Path, outage: Outage) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """The service, its address and its process."""
    (folder / "home").mkdir(exist_ok=True)
    own = {"HOME": str(folder / "home"), "MAINSPRING_ADMIN_KEY": ADMIN_KEY}
    with (folder / "errors.log").open("a") as errors:
        process = subprocess.Popen(
            [*PROGRAM, "serve", "--port", "0", "--model", "ollama:test"],
            cwd=folder,
            env={**clean_environ(), **outage.upstream.variables, **PATIENT, **own},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with process:
        assert process.stdout is not None
        try:
            urls = (re.search(r"http://\S+", line) for line in process.stdout)
            yield next(url.group() for url in urls if url), process
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_session_of_the_service_is_rescheduled_until_the_outage_is_over(
    is_killed: bool, outage: Outage, tmp_path: Path
):
    with served(tmp_path, outage) as (url, process):
        async with AsyncAnthropic(api_key=ADMIN_KEY, base_url=url) as client:
            session_id = await begun(client, "begin")
            if is_killed:
                for _ in range(5):
                    await to_thread.run_sync(outage.upstream.asked.acquire)
                process.kill()
            else:
                await upto_idle(client, session_id)
    if is_killed:
        with served(tmp_path, outage) as (url, _):
            async with AsyncAnthropic(api_key=ADMIN_KEY, base_url=url) as client:
                await upto_idle(client, session_id)
    events = await events_of(tmp_path / ".mainspring" / "mainspring.db")
    check_finished(events)
    assert any(isinstance(event.payload, StatusRescheduled) for event in events)
