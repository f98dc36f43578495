"""Stores by their address."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeAlias, cast

import anyio

from mainspring.capabilities.vault.redaction import scrubber
from mainspring.config import FOLDER, Settings, is_postgres, without_password
from mainspring.core import error_table
from mainspring.core.errors import InvalidInput
from mainspring.log import sqlite
from mainspring.log.migrate import SchemaStatus
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.wiring.user_vault import known_secrets

_GITIGNORE = """\
# Made by Mainspring: sessions, snapshots and the state of sandboxes stay on this machine.
*
# What a team shares can be committed.
!/settings.json
!/models.toml
!/mcp.json
!/rules/
!/rules/**
!/skills/
!/skills/**
!/agents/
!/agents/**
!/commands/
!/commands/**
!/plugins/
!/plugins/**
"""

Opener: TypeAlias = Callable[[str], AbstractAsyncContextManager[Store]]


def open_store(url: str) -> AbstractAsyncContextManager[Store]:
    """Open a SQLite file by its path, or PostgreSQL by its URL.

    Raises:
        InvalidInput: no store goes by such a URL, or its driver is not installed.
    """
    if is_postgres(url):
        return _opener()(url)
    if "://" in url:
        raise InvalidInput(
            f"{without_password(url)}: no store goes by such a URL;"
            " give the path of a SQLite file or postgresql://..."
        )
    _keep_out_of_git(Path(url))
    return sqlite.open_sqlite(Path(url))


def _keep_out_of_git(store: Path) -> None:
    """Have git ignore a new `.mainspring` folder from the beginning."""
    if store.parent.name != FOLDER or os.path.lexists(store):
        return
    with suppress(OSError):  # the store reports a wrong folder; an existing file stays
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(store.parent / ".gitignore", flags, 0o600), "w") as file:
            file.write(_GITIGNORE)


def _opener() -> Opener:
    return cast("Opener", _postgres().open_postgres)


def _postgres() -> ModuleType:
    try:  # by name: the driver is an extra, and takes long to import
        return import_module("mainspring.log.postgres")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise error_table.NO_POSTGRES_DRIVER.error(InvalidInput) from error


async def schema_status(url: str) -> SchemaStatus:
    """The version of a store's tables; nothing is changed."""
    if is_postgres(url):
        return await _postgres().standing(url)
    return await anyio.to_thread.run_sync(sqlite.standing, Path(url))


async def migrate(url: str, target: int | None) -> None:
    """Migrate a store to the tables of a version: the newest by default, or an older one.

    Raises:
        StoreMismatch: a step cannot be undone without losing data.
    """
    if is_postgres(url):
        return await _postgres().migrate(url, target)
    await anyio.to_thread.run_sync(sqlite.migrate, Path(url), target)


def has_store(settings: Settings) -> bool:
    """Whether there is a store to open; a server always counts."""
    return "://" in settings.store or Path(settings.store).exists()


@asynccontextmanager
async def open_log(settings: Settings) -> AsyncGenerator[SessionLog, None]:
    async with open_store(settings.store) as store:
        yield SessionLog(store, scrub=scrubber(known_secrets(settings)))


async def reach_postgres(url: str) -> str:
    """The version of the server, read without touching any table.

    Raises:
        InvalidInput: the driver is not installed. StoreFailed: it cannot be used, and why.
    """
    _postgres()
    return await import_module("mainspring.log.postgres.connect").server_version(url)
