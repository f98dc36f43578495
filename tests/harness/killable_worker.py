"""Lives of a worker that runs one session until it is done or killed: a process that forks them.

`python -m tests.harness.killable_worker` has imported all it needs, is single-threaded, and answers
every order on stdin with the exit status of the child that carried it out.
`killable_sandbox_worker` does the same with a real runtime.
"""

import gc
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Generic, TypeVar, cast

import anyio
import msgspec
from msgspec import Struct
from tests.crash.stores import open_store, preload
from tests.harness.fake_sandbox import AsksFirst, Ledger, answer, tools
from tests.harness.session_setup import Stage
from tests.senders import TESTER

from mainspring.capabilities.providers.scripted import Scripted
from mainspring.core.content import TextBlock
from mainspring.core.events import (
    AgentCustomToolUse,
    StatusIdle,
    ToolCallStarted,
    UserCustomToolResult,
    UserToolConfirmation,
)
from mainspring.core.model import Delta, Model, Reply, Request
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Append, InboxItem, Lease, Store

_LIFE_SECONDS = 60
_KILLED = -signal.SIGKILL

OrderT = TypeVar("OrderT", bound=Struct)


class Order(Struct, frozen=True, kw_only=True):
    url: str
    session_id: str
    ledger: str
    where: str = ""
    """Near what to die: `before write`, `after effect`, `delta`, ..."""
    number: int = 0
    """At which of them, from 1."""


class Fuse:
    """Kills this process at the chosen instant, as the kernel would: nothing is cleaned up."""

    def __init__(self, where: str, number: int, blow: Callable[[], None] | None = None) -> None:
        self._where = where
        self._left = number
        self._blow = blow or die
        self.passed: dict[str, int] = {}

    def near(self, where: str) -> None:
        self.passed[where] = self.passed.get(where, 0) + 1
        if where == self._where:
            self._left -= 1
            if self._left == 0:
                self._blow()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fused:
    """A store whose every write is an instant to die at, before it and after it."""

    def __init__(
        self, store: Store, fuse: Fuse, written: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._fuse = fuse
        self._written = written

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, append: Append) -> None:
        self._fuse.near("before write")
        await self._store.append(append)
        self._fuse.near("after write")
        self._written()

    async def submit(self, session_id: str, item: InboxItem) -> InboxItem:
        self._fuse.near("before write")
        kept = await self._store.submit(session_id, item)
        self._fuse.near("after write")
        return kept

    async def acquire(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float,
        instead_of: tuple[str, int] | None = None,
    ) -> Lease:
        lease = await self._store.acquire(
            session_id, owner=owner, seconds=seconds, instead_of=instead_of
        )
        self._fuse.near("after write")
        return lease

    async def put_blob(self, session_id: str, digest: str, content: bytes) -> None:
        self._fuse.near("before write")
        await self._store.put_blob(session_id, digest, content)
        self._fuse.near("after write")


class Streaming:
    """A model in whose every delta one may die."""

    def __init__(self, model: Model, fuse: Fuse) -> None:
        self._model = model
        self._fuse = fuse

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        async with aclosing(self._model.stream(request)) as deltas:
            async for delta in deltas:
                self._fuse.near("delta")
                yield delta


async def live(order: Order, fuse: Fuse) -> None:
    """Run the session and be its client: answer what it waits for, until it has completed."""
    ledger = Ledger(Path(order.ledger), fuse.near)
    async with open_store(order.url) as store:
        log = SessionLog(cast("Store", Fused(store, fuse, ledger.log_was_written)))
        stage = Stage(
            log=log,
            session_id=order.session_id,
            model=Streaming(Scripted(otherwise=answer), fuse),
            tools=tools(ledger),
            custom_tools=frozenset({"fetch"}),
            authorizer=AsksFirst(),
        )
        while True:
            await stage.play()
            idle = [e for e in await stage.events() if isinstance(e.payload, StatusIdle)]
            last = idle[-1].payload
            assert isinstance(last, StatusIdle)
            if last.reason == "completed":
                return
            assert last.reason == "requires_action", last
            for call_id in last.stop_reason.event_ids or ():
                await _answer(stage, call_id, ledger)


async def _answer(stage: Stage, call_id: str, ledger: Ledger) -> None:
    """Safe to repeat, as a client does who was killed between sending and hearing."""
    events = await stage.events()
    [asked] = [event for event in events if event.id == call_id]
    if isinstance(asked.payload, AgentCustomToolUse):
        body = UserCustomToolResult(
            custom_tool_use_id=call_id, content=(TextBlock("what the client has"),)
        )
        await stage.log.submit(stage.session_id, body, client_id=f"{call_id} result", sender=TESTER)
        return
    started = [event.payload for event in events if isinstance(event.payload, ToolCallStarted)]
    tried = [start for start in started if start.tool_use_id == call_id]
    is_done = any(start.idempotency_key in _keys(ledger) for start in tried)
    await stage.log.submit(
        stage.session_id,
        UserToolConfirmation(tool_use_id=call_id, result="deny" if is_done else "allow"),
        client_id=f"{call_id} attempt {len(tried)}",
        sender=TESTER,
    )


def _keys(ledger: Ledger) -> set[str]:
    return {deed.key for deed in ledger.deeds()}


async def _live(order: Order) -> None:
    with anyio.fail_after(_LIFE_SECONDS):
        await live(order, Fuse(order.where, order.number))


def begin(life: Callable[[OrderT], Awaitable[None]], order: OrderT) -> int:
    """In a child of its own, whose process id this is."""
    if child := os.fork():
        return child
    try:
        anyio.run(life, order)
        os._exit(0)
    except BaseException:  # noqa: BLE001 (the parent sees the status, people the trace)
        traceback.print_exc()
    finally:
        os._exit(1)


def ended(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def serve(kind: type[OrderT], carry_out: Callable[[OrderT], int]) -> None:
    """Take orders until there are no more. Everything is to be imported by now."""
    anyio.run(anyio.sleep, 0)  # loads the backend
    gc.freeze()
    for line in sys.stdin.buffer:
        status = carry_out(msgspec.json.decode(line, type=kind))
        sys.stdout.buffer.write(b"%d\n" % status)
        sys.stdout.buffer.flush()


def main() -> None:
    preload("postgresql://", "tests.crash.stores:open_store")
    serve(Order, lambda order: ended(begin(_live, order)))


class Lives(Generic[OrderT]):
    """The parent's side."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def live(self, order: OrderT) -> bool:
        """One life; true if it was killed, false if it ended with the work done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, _KILLED), f"a life ended with {status}; its trace is on stderr"
        return status == _KILLED


@contextmanager
def lives(kind: type[OrderT], module: str) -> Generator[Lives[OrderT]]:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", module], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        yield Lives[kind](process)


if __name__ == "__main__":
    main()
