"""Opens stores by their address, and migrates them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import anyio

from mainspring import error_table
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import FOLDER, Settings, is_postgres, without_password
from mainspring.core.errors import InvalidInput
from mainspring.log import sqlite
from mainspring.log.migrate import SchemaStatus
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.runtime.agent_folder.state_folder import ignore_state_in_git
from mainspring.wiring.user_vault import known_secrets, store_key


class Opener(Protocol):
    def __call__(self, url: str, *, key: bytes) -> AbstractAsyncContextManager[Store]: ...


def open_store(settings: Settings) -> AbstractAsyncContextManager[Store]:
    """Open a SQLite file by its path, or PostgreSQL by its URL, with the installation's key.

    Raises:
        InvalidInput: the URL is not supported, or its driver is not installed.
    """
    url, key = settings.store, store_key(settings)
    if is_postgres(url):
        return _opener()(url, key=key)
    if "://" in url:
        raise InvalidInput(
            f"{without_password(url)}: this kind of URL is not supported;"
            " give the path of a SQLite file or postgresql://..."
        )
    if Path(url).parent.name == FOLDER:
        ignore_state_in_git(Path(url))
    return sqlite.open_sqlite(Path(url), key=key)


def _opener() -> Opener:
    return cast("Opener", _postgres().open_postgres)


def _postgres() -> ModuleType:
    try:  # by name: the driver is an optional extra that is slow to import
        return import_module("mainspring.log.postgres")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise error_table.NO_POSTGRES_DRIVER.error(InvalidInput) from error


async def schema_status(url: str) -> SchemaStatus:
    """The version of a store's tables; nothing is changed."""
    if is_postgres(url):
        return await _postgres().schema_status(url)
    return await anyio.to_thread.run_sync(sqlite.schema_status, Path(url))


async def migrate(url: str, target: int | None) -> None:
    """Migrate a store to the tables of a version: the newest by default, or an older one.

    Raises:
        StoreMismatch: a step cannot be undone without losing data.
    """
    if is_postgres(url):
        return await _postgres().migrate(url, target)
    await anyio.to_thread.run_sync(sqlite.migrate, Path(url), target)


def has_store(settings: Settings) -> bool:
    """Whether there is a store to open; a database server always counts as one."""
    return "://" in settings.store or Path(settings.store).exists()


@asynccontextmanager
async def open_log(settings: Settings) -> AsyncGenerator[SessionLog, None]:
    async with open_store(settings) as store:
        yield SessionLog(store, scrub=Scrubber(known_secrets(settings)))


async def reach_postgres(url: str) -> str:
    """The version of the server, read without touching any table.

    Raises:
        InvalidInput: the driver is not installed. StoreFailed: the server cannot be used.
    """
    _postgres()
    return await import_module("mainspring.log.postgres.connect").server_version(url)
