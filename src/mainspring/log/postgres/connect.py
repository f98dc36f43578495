"""Connections to a PostgreSQL server, a pool of them, and translation of the server's errors. No
error contains a password.
"""

from __future__ import annotations

import select
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

import anyio
import psycopg
from anyio import CancelScope
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from mainspring.core.errors import (
    InvalidInput,
    MainspringError,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreUnavailable,
)

# Settings that we rely on and that a server may override. Set by a statement, because connection
# poolers reject `options`.
_SETTINGS: Final = """
    select set_config('default_transaction_isolation', 'read committed', false),
           set_config('synchronous_commit', 'on', false)
     where current_setting('default_transaction_isolation') <> 'read committed'
        or current_setting('synchronous_commit') = 'off'
"""
# Detects a dead server within half a minute, even if no packet arrives.
_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "mainspring",
    "client_encoding": "utf8",
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    @cached_property
    def shared_cursor(self) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        """One cursor for all statements: a new cursor each time would add a sixth to an append."""
        return self.cursor()


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is. Its string forms contain no password."""

    url: str
    settings: dict[str, Any]
    password: str | None

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises: InvalidInput: it is not a PostgreSQL URL."""
        try:
            settings: dict[str, Any] = dict(conninfo_to_dict(url))
        except psycopg.Error:  # its text quotes the URL, so we drop it
            raise InvalidInput(
                "this is not a PostgreSQL URL; write it as postgresql://user@host:5432/database"
            ) from None
        password = settings.get("password") or None
        return cls(_display_name(settings), settings, password)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Address({self.url})"

    def without_password(self, text: str) -> str:
        return text.replace(self.password, "***") if self.password else text


def _display_name(settings: dict[str, Any]) -> str:
    user = f"{settings['user']}@" if settings.get("user") else ""
    host = settings.get("host") or settings.get("hostaddr") or "localhost"
    port = f":{settings['port']}" if settings.get("port") else ""
    return f"postgresql://{user}{host}{port}/{settings.get('dbname', '')}"


async def connect(address: Address) -> Connection:
    connection = await Connection.connect(autocommit=True, **{**_DEFAULTS, **address.settings})
    try:
        await connection.execute(_SETTINGS)
    except BaseException:
        await connection.close()
        raise
    return connection


async def server_version(url: str) -> str:
    """The version of the server, read without touching any table. Raises: StoreFailed."""
    address = Address.of(url)
    with translate_errors(address):
        async with await connect(address) as connection:
            row = await (await connection.execute("show server_version")).fetchone()
            return str(row[0] if row else "")


@contextmanager
def translate_errors(address: Address) -> Generator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise translate_error(address, error) from error


def translate_error(address: Address, error: psycopg.Error) -> MainspringError:
    text = address.without_password(" ".join(str(error).split()))
    kind = _error_type(error)
    if kind is StoreFull:
        return StoreFull(f"{address}: the server's disk is full; nothing was written ({text})")
    if kind is StoreReadOnly:
        return StoreReadOnly(f"{address}: cannot be written ({text})")
    if kind is StoreCorrupt:
        return StoreCorrupt(f"{address}: is damaged ({text}); see docs/log.md")
    if kind is StoreMismatch:
        return StoreMismatch(f"{address}: its tables are not Mainspring's ({text})")
    if kind is StoreUnavailable:
        return StoreUnavailable(f"{address}: cannot be reached ({text})")
    return kind(f"{address}: {text}")


_KINDS: Final[dict[str, type[MainspringError]]] = {
    "08": StoreUnavailable,  # connection lost or refused
    "22": InvalidInput,  # a value that PostgreSQL cannot hold
    "25006": StoreReadOnly,
    "28": StoreFailed,  # authentication: retries do not help
    "3D000": StoreFailed,  # no such database
    "3F000": StoreMismatch,
    "40": StoreUnavailable,  # serialization, deadlock
    "42501": StoreReadOnly,  # no privilege
    "42P01": StoreMismatch,  # no such table
    "42703": StoreMismatch,  # no such column
    "53100": StoreFull,
    "53": StoreUnavailable,  # memory, too many connections
    "55P03": StoreUnavailable,
    "57": StoreUnavailable,  # shut down, starting up, cancelled by an operator
    "58": StoreUnavailable,  # the server's machine failed
    "XX001": StoreCorrupt,
    "XX002": StoreCorrupt,
}


def _error_type(error: psycopg.Error) -> type[MainspringError]:
    if state := error.sqlstate:
        return _KINDS.get(state) or _KINDS.get(state[:2]) or StoreFailed
    if isinstance(error, psycopg.OperationalError):
        return _connection_error_type(str(error))
    if isinstance(error, psycopg.DataError):  # refused by the driver: NUL in a text
        return InvalidInput
    return StoreFailed


def _connection_error_type(text: str) -> type[MainspringError]:
    """Errors while connecting have no code, only a message."""
    hopeless = ("password", "does not exist", "pg_hba.conf", "SSL", "certificate")
    return StoreFailed if any(word in text for word in hopeless) else StoreUnavailable


T = TypeVar("T")


class Pool:
    def __init__(self, address: Address, *, size: int) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._slots = anyio.Semaphore(size, fast_acquire=True)

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work` on its own connection. Cancellation works only while it waits for one."""
        try:
            self._slots.acquire_nowait()
        except anyio.WouldBlock:
            await self._slots.acquire()
        try:
            with CancelScope(shield=True):
                return await self._run(work)
        except psycopg.Error as error:
            raise translate_error(self.address, error) from error
        finally:
            self._slots.release()
        raise AssertionError("a shielded scope is not cancelled from outside")

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Like `run`, for idempotent work: it is repeated if the connection breaks."""
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
            if _is_usable(connection):
                return connection
            await connection.close()
        return await connect(self.address)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()


class SingleConnectionPool(Pool):
    """Does all work on one connection, inside its transaction, one call at a time."""

    def __init__(self, address: Address, connection: Connection) -> None:
        super().__init__(address, size=1)
        self._connection = connection

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        return await work(self._connection)


def _is_usable(connection: Connection) -> bool:
    """Data on an idle connection means that the server has closed it."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
