"""Workers as `serve` and `worker` run them, and a process that forks one for every order.

`python -m tests.fleet.worker_main` has imported all it needs and is single-threaded: a worker
starts in milliseconds. It answers each order on stdin with the process id.
"""

import gc
import logging
import os
import signal
import sys
import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct
from tests.crash.stores import is_sqlite, preload
from tests.fleet.effects import answering, clerk, steps
from tests.keys import VAULT_KEY

from mainspring import Runtime, open_runtime
from mainspring.config import read_settings
from mainspring.log import session_lease
from mainspring.log.task_groups import run_in_background
from mainspring.service.jobs.dispatcher import Dispatcher
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.jobs.postgres_dispatcher import open_fleet
from mainspring.service.jobs.worker import Worker, WorkerSettings
from mainspring.testing import Scripted


class Order(Struct, frozen=True, kw_only=True):
    url: str
    folder: str
    """Where ledgers are."""
    steps: int = 4
    is_gentle: bool = False
    latency_seconds: float = 0.1
    concurrency: int = 16
    is_blind: bool = False
    """As if on another machine: it cannot see that a process has died."""


@asynccontextmanager
async def open_dispatcher(url: str, runtime: Runtime) -> AsyncGenerator[Dispatcher]:
    if is_sqlite(url):
        yield EmbeddedDispatcher(runtime.log.store.records)
        return
    async with open_fleet(url) as dispatcher:
        yield dispatcher


def _cannot_tell(owner: str) -> bool:
    del owner
    return False


async def main(order: Order) -> None:
    if order.is_blind:
        session_lease.is_dead = _cannot_tell
    model = Scripted(
        otherwise=answering(steps(order.steps, is_gentle=order.is_gentle)),
        latency_seconds=order.latency_seconds,
    )
    closing = anyio.Event()

    async def run(session_id: str) -> None:
        agent = clerk(Path(order.folder), session_id)
        await (await runtime.resume(agent, session_id)).run()

    async def listen() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                closing.set()

    settings = read_settings(store=order.url, environ={"MAINSPRING_VAULT_KEY": VAULT_KEY})
    async with (
        open_runtime(settings) as runtime,
        open_dispatcher(order.url, runtime) as dispatcher,
        run_in_background(listen),
    ):
        runtime.models.put("scripted:clerk", model)
        pace = WorkerSettings(concurrency=order.concurrency, drain_seconds=0.2)
        await Worker(dispatcher, runtime.log, run, worker_settings=pace).work(closing)


def serve() -> None:
    anyio.run(anyio.sleep, 0)  # loads the backend
    preload("postgresql://", "tests.crash.stores:open_store")
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to bury them
    for line in sys.stdin.buffer:
        child = os.fork()
        if not child:
            _live(msgspec.json.decode(line, type=Order))
        sys.stdout.buffer.write(b"%d\n" % child)
        sys.stdout.buffer.flush()


def _live(order: Order) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        anyio.run(main, order)
    except BaseException:  # noqa: BLE001 (people see the trace)
        traceback.print_exc()
    finally:
        os._exit(0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    serve()
