"""Sends short texts between processes over NOTIFY: in batches, best effort, not stored.

Streams use it for previews of text that is not in the log yet. `wakeups.py` sends wake-ups, which
must arrive in the end.
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

_GATHER_SECONDS = 0.04  # notices of other processes are passed on together
_RETRY_SECONDS = 1.0  # before the listening connection is opened again
_LINGER_SECONDS = 5.0
"""How long the connection stays open after the last listener has left."""
_MAX_WAITING = 10_000
"""The maximum number of unsent texts. Beyond it, all are dropped: the server is down or
overloaded."""
_PAYLOAD_BYTES = 7900
"""PostgreSQL accepts fewer than 8000."""
_SEND: Final = "select pg_notify('mainspring_deltas', payload) from unnest(%s::text[]) payload"


class Broadcast:
    def __init__(self, pool: Pool, *, name: str) -> None:
        self._pool = pool
        self._name = name
        """A prefix of this process's payloads, so that it ignores its own notifications."""
        self._waiting: list[str] = []
        self._has_messages = anyio.Event()
        self._listeners: dict[str, list[Callable[[str], None]]] = {}
        self._has_listeners = anyio.Event()
        self._is_listening = anyio.Event()

    def publish(self, topic: str, text: str) -> None:
        """Send a text to the other processes, soon. Topic and text must not contain line breaks."""
        if len(self._waiting) >= _MAX_WAITING:
            self._waiting.clear()
        self._waiting.append(f"{topic} {text}")
        self._has_messages.set()

    @contextmanager
    def listen(self, topic: str, on_message: Callable[[str], None]) -> Generator[None]:
        """Receive other processes' texts on a topic, until the block ends."""
        listeners = self._listeners.setdefault(topic, [])
        listeners.append(on_message)
        self._has_listeners.set()
        try:
            yield
        finally:
            listeners.remove(on_message)
            if not listeners:
                del self._listeners[topic]

    async def wait_until_listening(self) -> None:
        """Return once this process receives the others' texts."""
        await self._is_listening.wait()

    async def announce(self) -> None:
        """Send published texts, until cancelled."""
        while True:
            await self._has_messages.wait()
            self._has_messages = anyio.Event()
            messages, self._waiting = self._waiting, []
            try:
                await self._pool.run(partial(_send, list(pack_messages(self._name, messages))))
            except StoreFailed:  # these texts are lost
                await anyio.sleep(_RETRY_SECONDS)
            await anyio.sleep(_GATHER_SECONDS)

    async def receive(self) -> None:
        """Pass other processes' texts to the listeners, until cancelled. Needs a connection only
        while there are listeners."""
        while True:
            await self._has_listeners.wait()
            with suppress(psycopg.Error, OSError):
                await self._receive()
            self._is_listening = anyio.Event()
            if self._listeners:
                await anyio.sleep(_RETRY_SECONDS)
            else:
                self._has_listeners = anyio.Event()

    async def _receive(self) -> None:
        connection = await connect(self._pool.address)
        try:
            await connection.execute("listen mainspring_deltas")
            self._is_listening.set()
            while self._listeners:
                async for notification in connection.notifies(timeout=_LINGER_SECONDS):
                    self._pass_on(notification.payload)
        finally:
            with CancelScope(shield=True):
                await connection.close()

    def _pass_on(self, payload: str) -> None:
        sender, *messages = payload.split("\n")
        if sender == self._name:
            return
        for message in messages:
            topic, _, text = message.partition(" ")
            for on_message in tuple(self._listeners.get(topic, ())):
                on_message(text)


async def _send(payloads: list[str], db: Connection) -> None:
    await db.shared_cursor.execute(_SEND, [payloads], prepare=True)


def pack_messages(name: str, messages: Iterable[str]) -> Iterable[str]:
    """Pack texts into as few payloads as possible, in order. A text that is too long is dropped."""
    payload, size = name, len(name)
    for message in messages:
        message_bytes = len(message.encode(errors="surrogatepass")) + 1
        if len(name) + message_bytes > _PAYLOAD_BYTES:
            continue
        if size + message_bytes > _PAYLOAD_BYTES:
            yield payload
            payload, size = name, len(name)
        payload += f"\n{message}"
        size += message_bytes
    if payload != name:
        yield payload


@asynccontextmanager
async def open_broadcast(url: str) -> AsyncGenerator[Broadcast, None]:
    """Exchange texts with other processes that use the database at `url`. Takes one connection to
    send, and another one while there are listeners."""
    pool = Pool(Address.of(url), size=1)
    broadcast = Broadcast(pool, name=ids.new_id(ids.WORKER))
    try:
        async with run_in_background(broadcast.announce, broadcast.receive):
            yield broadcast
    finally:
        with CancelScope(shield=True):
            await pool.close()
