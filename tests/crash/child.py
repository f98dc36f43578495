"""What a child does with its life, by order. Runs in the child only."""

import os
import signal
import sqlite3
from random import Random
from typing import Any

import anyio
from tests.crash.reporter import Reporter
from tests.crash.stores import named
from tests.crash.wire import Dying, Order, Saw, Sleep, Stopping, Take, Watch, Work
from tests.crash.worker import Shared, Worker

from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store

_LONG_SECONDS = 20.0
_AGAIN_SECONDS = 0.005


async def live(order: Order, descriptor: int) -> None:
    reporter = Reporter(descriptor)
    if isinstance(order, Work) and order.kill_at:
        die_at_statement(order.kill_at, reporter)
    async with named(order.opener)(order.url) as store:
        match order:
            case Work():
                await _work(order, store, reporter)
            case Watch():
                await _watch(order, store, reporter)
            case Sleep():
                await _sleep(order, store, reporter)
            case Take():
                await _take(order, store, reporter)


def die_at_statement(number: int, reporter: Reporter) -> None:
    """Kill this process before the `number`-th SQL statement of all its SQLite connections."""
    remaining = number

    def count(statement: str) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            reporter.say(Dying(statement=" ".join(statement.split()[:3])))
            os.kill(os.getpid(), signal.SIGKILL)

    connect = sqlite3.connect

    def traced(*arguments: Any, **settings: Any) -> sqlite3.Connection:  # noqa: ANN401 (as given)
        connection = connect(*arguments, **settings)
        connection.set_trace_callback(count)
        return connection

    # this process is about to die; an audit hook sees a connection too early to trace it
    setattr(sqlite3, "connect", traced)  # noqa: B010 (an assignment has the wrong type)


async def _work(order: Work, store: Store, reporter: Reporter) -> None:
    shared = Shared(reporter, list(order.sessions), is_repeatable=bool(order.kill_at))
    workers = [
        Worker(store, shared, Random(f"{order.seed}/{task}"), f"{order.tag}t{task}")
        for task in range(order.tasks)
    ]
    for sent in order.retries:
        await workers[0].send_again(sent)
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.work, order.operations)


async def _watch(order: Watch, store: Store, reporter: Reporter) -> None:
    async for event in SessionLog(store).follow(order.session_id, after=order.after):
        reporter.say(Saw(seq=event.seq, id=event.id))


async def _sleep(order: Sleep, store: Store, reporter: Reporter) -> None:
    shared = Shared(reporter, [], is_repeatable=False)
    worker = Worker(store, shared, Random(order.tag), order.tag)
    await worker.create()
    [session_id] = shared.sessions
    await worker.hold(session_id, owner="sleeper", seconds=order.seconds)
    await worker.append(session_id)
    reporter.say(Stopping(session_id=session_id))
    os.kill(os.getpid(), signal.SIGSTOP)
    await worker.append(session_id)


async def _take(order: Take, store: Store, reporter: Reporter) -> None:
    shared = Shared(reporter, [order.session_id], is_repeatable=False)
    worker = Worker(store, shared, Random(order.tag), order.tag)
    while not await worker.hold(  # noqa: ASYNC110 (leases end by the clock)
        order.session_id, owner=order.tag, seconds=_LONG_SECONDS
    ):
        await anyio.sleep(_AGAIN_SECONDS)
    await worker.append(order.session_id)
