"""Stores by their address."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TypeAlias, cast

from mainspring.config import Settings, is_postgres, without_password
from mainspring.core.errors import InvalidInput
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store
from mainspring.wiring.scrub import scrubber
from mainspring.wiring.vaults import known_secrets

Opener: TypeAlias = Callable[[str], AbstractAsyncContextManager[Store]]


def open_store(url: str) -> AbstractAsyncContextManager[Store]:
    """Open a SQLite file by its path, or PostgreSQL by its URL.

    Raises:
        InvalidInput: no store goes by such a URL, or its driver is not installed.
    """
    if is_postgres(url):
        return _postgres()(url)
    if "://" in url:
        raise InvalidInput(
            f"{without_password(url)}: no store goes by such a URL;"
            " give the path of a SQLite file or postgresql://..."
        )
    return open_sqlite(Path(url))


def _postgres() -> Opener:
    try:  # by name: the driver is an extra, and takes long to import
        module = import_module("mainspring.log.postgres")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        missing = InvalidInput("the PostgreSQL driver is not installed")
        missing.add_note("pip install 'mainspring[postgres]'")
        raise missing from error
    return cast("Opener", module.open_postgres)


def has_store(settings: Settings) -> bool:
    """Whether there is anything to open; a server is asked by opening it."""
    return "://" in settings.store or Path(settings.store).exists()


@asynccontextmanager
async def open_log(settings: Settings) -> AsyncGenerator[SessionLog, None]:
    async with open_store(settings.store) as store:
        yield SessionLog(store, scrub=scrubber(known_secrets(settings)))


async def reach_postgres(url: str) -> str:
    """The server's version, asked without touching any table.

    Raises:
        InvalidInput: the driver is not installed. StoreFailed: it cannot be used, and why.
    """
    _postgres()
    server = import_module("mainspring.log.postgres.connect")
    address = server.Address.of(url)
    with server.translated(address):
        async with await server.connect(address) as connection:
            found = await (await connection.execute("show server_version")).fetchone()
            return str(found[0])
