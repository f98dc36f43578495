"""Short texts between processes, over NOTIFY: gathered, best effort, kept nowhere.

For what streams show before it is in the log. Wake-ups, which must not be lost for long, are
`wakeups.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final

import anyio
import psycopg
from anyio import CancelScope

from mainspring.core import ids
from mainspring.core.errors import StoreFailed
from mainspring.log.postgres.connect import Address, Connection, Pool, connect
from mainspring.log.task_groups import run_in_background

_GATHER_SECONDS = 0.04
_PATIENCE_SECONDS = 1.0
_LOOK_SECONDS = 5.0
"""How long after the last listener has gone the connection stays."""
_MOST_WAITING = 10_000
"""Texts not yet sent; beyond it they are all dropped, as the server is away or overwhelmed."""
_PAYLOAD_BYTES = 7900
"""PostgreSQL takes less than 8000."""
_SEND: Final = "select pg_notify('mainspring_deltas', each) from unnest(%s::text[]) each"


class Broadcast:
    def __init__(self, pool: Pool, *, name: str) -> None:
        self._pool = pool
        self._name = name
        """Begins every payload of ours, so that we need not listen to ourselves."""
        self._waiting: list[str] = []
        self._anything = anyio.Event()
        self._listeners: dict[str, list[Callable[[str], None]]] = {}
        self._someone = anyio.Event()
        self._tuned = anyio.Event()

    def say(self, topic: str, text: str) -> None:
        """Have other processes hear it, in moments. Neither may have a line end in it."""
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.clear()
        self._waiting.append(f"{topic} {text}")
        self._anything.set()

    @contextmanager
    def listen(self, topic: str, on_message: Callable[[str], None]) -> Generator[None]:
        """Hear what other processes say on a topic, until the block ends."""
        listeners = self._listeners.setdefault(topic, [])
        listeners.append(on_message)
        self._someone.set()
        try:
            yield
        finally:
            listeners.remove(on_message)
            if not listeners:
                del self._listeners[topic]

    async def tuned(self) -> None:
        """Return when this process hears the others."""
        await self._tuned.wait()

    async def announce(self) -> None:
        """Send what is said, for as long as it runs."""
        while True:
            await self._anything.wait()
            self._anything = anyio.Event()
            messages, self._waiting = self._waiting, []
            try:
                await self._pool.run(partial(_send, list(pack_messages(self._name, messages))))
            except StoreFailed:  # then nobody hears it
                await anyio.sleep(_PATIENCE_SECONDS)
            await anyio.sleep(_GATHER_SECONDS)

    async def hear(self) -> None:
        """Pass on what other processes say, for as long as it runs; needs a connection only while
        somebody listens."""
        while True:
            await self._someone.wait()
            with suppress(psycopg.Error, OSError):
                await self._hear()
            self._tuned = anyio.Event()
            if self._listeners:
                await anyio.sleep(_PATIENCE_SECONDS)
            else:
                self._someone = anyio.Event()

    async def _hear(self) -> None:
        connection = await connect(self._pool.address)
        try:
            await connection.execute("listen mainspring_deltas")
            self._tuned.set()
            while self._listeners:
                async for letter in connection.notifies(timeout=_LOOK_SECONDS):
                    self._pass_on(letter.payload)
        finally:
            with CancelScope(shield=True):
                await connection.close()

    def _pass_on(self, payload: str) -> None:
        sender, *messages = payload.split("\n")
        if sender == self._name:
            return
        for item in messages:
            topic, _, text = item.partition(" ")
            for on_message in tuple(self._listeners.get(topic, ())):
                on_message(text)


async def _send(payloads: list[str], db: Connection) -> None:
    await db.asking.execute(_SEND, [payloads], prepare=True)


def pack_messages(name: str, messages: Iterable[str]) -> Iterable[str]:
    """Payloads that hold as many texts as fit, in order; a text that fits in none is dropped."""
    letter, size = name, len(name)
    for item in messages:
        bytes_more = len(item.encode(errors="surrogatepass")) + 1
        if len(name) + bytes_more > _PAYLOAD_BYTES:
            continue
        if size + bytes_more > _PAYLOAD_BYTES:
            yield letter
            letter, size = name, len(name)
        letter += f"\n{item}"
        size += bytes_more
    if letter != name:
        yield letter


@asynccontextmanager
async def open_broadcast(url: str) -> AsyncGenerator[Broadcast, None]:
    """Talk to the other processes of the database at `url`; takes a connection to speak, and
    another one while it listens."""
    pool = Pool(Address.of(url), size=1)
    broadcast = Broadcast(pool, name=ids.new_id(ids.WORKER))
    try:
        async with run_in_background(broadcast.announce, broadcast.hear):
            yield broadcast
    finally:
        with CancelScope(shield=True):
            await pool.close()
