"""Connections to a PostgreSQL server, and its errors in our words, without the password."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

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

# What the server may have been told otherwise, and we rely on. By statement, not by `options`:
# poolers in between refuse those.
_SETTINGS: Final = """
    select set_config('default_transaction_isolation', 'read committed', false),
           set_config('synchronous_commit', 'on', false)
     where current_setting('default_transaction_isolation') <> 'read committed'
        or current_setting('synchronous_commit') = 'off'
"""
# A server that is gone is noticed within half a minute, also when no packet says so.
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
    def asking(self) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        """One cursor for all statements: a new one for each would cost a sixth of an append."""
        return self.cursor()


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is. Shown and logged, it has no password."""

    url: str
    settings: dict[str, Any]
    password: str | None

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises: InvalidInput: it is not a PostgreSQL URL."""
        try:
            settings: dict[str, Any] = dict(conninfo_to_dict(url))
        except psycopg.Error:  # its text quotes the URL, so it is not passed on
            raise InvalidInput(
                "this is not a PostgreSQL URL; write it as postgresql://user@host:5432/database"
            ) from None
        password = settings.get("password") or None
        return cls(_shown(settings), settings, password)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Address({self.url})"

    def without_password(self, text: str) -> str:
        return text.replace(self.password, "***") if self.password else text


def _shown(settings: dict[str, Any]) -> str:
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


@contextmanager
def translated(address: Address) -> Generator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise in_our_words(address, error) from error


def in_our_words(address: Address, error: psycopg.Error) -> MainspringError:
    text = address.without_password(" ".join(str(error).split()))
    kind = _kind(error)
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
    "28": StoreFailed,  # who are you? Waiting does not help
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


def _kind(error: psycopg.Error) -> type[MainspringError]:
    if state := error.sqlstate:
        return _KINDS.get(state) or _KINDS.get(state[:2]) or StoreFailed
    if isinstance(error, psycopg.OperationalError):
        return _refused(str(error))
    if isinstance(error, psycopg.DataError):  # refused by the driver: NUL in a text
        return InvalidInput
    return StoreFailed


def _refused(text: str) -> type[MainspringError]:
    """Errors while connecting carry no code, only the server's words."""
    hopeless = ("password", "does not exist", "pg_hba.conf", "SSL", "certificate")
    return StoreFailed if any(word in text for word in hopeless) else StoreUnavailable
