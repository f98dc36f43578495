"""Connections to share. Made on demand, kept when sound, dropped when the server dropped them.

Not `psycopg_pool`: that costs a tenth of an append, loses connections when the task that uses one
is cancelled by a scope, and reconnects on a schedule of its own after a restart.
"""

from __future__ import annotations

import select
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import psycopg
from anyio import CancelScope
from psycopg.pq import TransactionStatus

from mainspring.core.errors import StoreUnavailable
from mainspring.log.postgres.connect import Address, Connection, connect, in_our_words

T = TypeVar("T")


class Pool:
    def __init__(self, address: Address, *, size: int) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._turns = anyio.Semaphore(size, fast_acquire=True)

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work` on a connection of its own. Cancelled while it waits for one, or not at all."""
        try:
            self._turns.acquire_nowait()
        except anyio.WouldBlock:
            await self._turns.acquire()
        try:
            with CancelScope(shield=True):
                return await self._run(work)
        except psycopg.Error as error:
            raise in_our_words(self.address, error) from error
        finally:
            self._turns.release()
        raise AssertionError("a shielded scope is not cancelled from outside")

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """As `run`, for what may be done twice: a connection that breaks is not yet an error."""
        try:
            return await self.run(work)
        except StoreUnavailable:
            return await self.run(work)

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        connection = await self._take()
        try:
            return await work(connection)
        finally:
            if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                self._idle.append(connection)
            else:
                await connection.close()

    def add(self, connection: Connection) -> None:
        self._idle.append(connection)

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if _is_sound(connection):
                return connection
            await connection.close()
        return await connect(self.address)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()


class Pinned(Pool):
    """All work on one connection, in turns, inside the transaction that it is in."""

    def __init__(self, address: Address, connection: Connection) -> None:
        super().__init__(address, size=1)
        self._connection = connection

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        return await work(self._connection)


def _is_sound(connection: Connection) -> bool:
    """A server says nothing on an idle connection, except good-bye."""
    if connection.closed:
        return False
    ear = select.poll()
    ear.register(connection.fileno(), select.POLLIN)
    return not ear.poll(0)
