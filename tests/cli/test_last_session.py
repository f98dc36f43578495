"""`last` and `-c`: the last conversation of this person. Nothing else in the store counts, however
new it is or says it is."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import get_args

import anyio
from tests.cli.conftest import opened
from tests.cli.upstream import Upstream
from tests.fork_server import Run

from mainspring.core import clock
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import (
    EvalRunCreated,
    KnownPayload,
    SessionCreated,
    SessionReceived,
    UserMessage,
)
from mainspring.core.sender import Origin, OriginType, Sender
from mainspring.improve.evals.runs.run_log import create_run
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite

OTHERS: list[OriginType] = [item for item in get_args(OriginType) if item != "user"]
EVE = Sender(kind="person", id="cli:eve")
MESSAGE = UserMessage(content=(TextBlock("not this"),))
RECEIVED = SessionReceived(transfer_id="t1", workspace="/elsewhere")
RUN = EvalRunCreated(
    run_id="sess_0run",
    suite="smoke",
    suite_hash="0",
    agent_name="a",
    model="m",
    cases={},
    trials=1,
)


async def add(log: SessionLog, origin: OriginType, sender: Sender, *later: KnownPayload) -> str:
    created = SessionCreated(title=f"by {origin}", origin=Origin(type=origin))
    row = await log.create(created, sender=sender)
    async with hold_session(log, row.id) as writer:
        await writer.append(MESSAGE, *later)
    return row.id


def in_store(store: Path, work: Callable[[SessionLog, Sender], Awaitable[None]]) -> None:
    """Do the work, and add a session of this person that another installation wrote."""

    async def run() -> None:
        async with opened(store) as log:
            [first] = [row async for row in _rows(log)]
            assert first.sender is not None
            await work(log, first.sender)
        async with open_sqlite(store, key=b"x" * 32) as foreign:
            await add(SessionLog(foreign), "user", first.sender)

    anyio.run(run)


async def _rows(log: SessionLog) -> AsyncGenerator[Event]:
    for row in await log.sessions():
        for event in await log.read(row.id, limit=1):
            yield event


async def write_others(log: SessionLog, me: Sender) -> None:
    """A session of each other origin, of another person, received, and of the year after next."""
    for origin in OTHERS:
        await add(log, origin, me)
    await add(log, "user", EVE)
    await add(log, "user", me, RECEIVED)
    await create_run(log, RUN, sender=me)
    await add(log, "eval", me)  # a trial
    future = SessionLog(log.store, clock=lambda: clock.now() + timedelta(days=700))
    await add(future, "user", me)


def test_last_is_the_last_conversation_of_this_person(
    mainspring: Run, upstream: Upstream, store: Path
):
    assert mainspring("run", "my question", **upstream.variables).returncode == 0
    [line] = mainspring("sessions", "ls", "--json").stdout.splitlines()
    mine = json.loads(line)["id"]
    in_store(store, write_others)
    for command in (("run", "go", "-c"), ("-p", "go", "-c"), ("run", "go", "--resume", "last")):
        assert mainspring(*command, **upstream.variables).returncode == 0
        assert "my question" in json.dumps(upstream.requests[-1])
    shown = mainspring("sessions", "show", "last")
    assert "my question" in shown.stdout
    report = mainspring("eval", "report", "last")
    assert (report.returncode, "no trial has ended yet" in report.stdout + report.stderr) == (
        0,
        True,
    )
    others = mainspring("workflow", "show", "last")
    assert (others.returncode, "no workflow run yet" in others.stderr) == (1, True)
    listed = [
        json.loads(line) for line in mainspring("sessions", "ls", "--json").stdout.splitlines()
    ]
    assert {item["origin"]["type"] for item in listed} == {"user", "api", "import"}
    assert mine in {item["id"] for item in listed}
    everything = mainspring("sessions", "ls", "--all", "--json", "-n", "100").stdout.splitlines()
    assert {json.loads(line)["origin"]["type"] for line in everything} == {*get_args(OriginType)}
    evals = mainspring("sessions", "ls", "--origin", "eval", "--json").stdout.splitlines()
    assert {json.loads(line)["origin"]["type"] for line in evals} == {"eval"}
    assert mainspring("sessions", "ls", "--origin", "eval", "--all").returncode == 2


def test_without_a_conversation_of_this_person_last_is_an_error_with_a_way_out(
    mainspring: Run, upstream: Upstream, store: Path
):
    mainspring("run", "my question", **upstream.variables)
    in_store(store, write_others)
    mainspring("sessions", "rm", "last", "--yes")
    upstream.requests.clear()
    for command in (("run", "go", "-c"), ("-p", "go", "-c"), ("sessions", "show", "last")):
        result = mainspring(*command, **upstream.variables)
        assert result.returncode == 1
        assert "no conversation of yours" in result.stderr
        assert "sessions ls --all" in result.stderr
    assert upstream.requests == []
