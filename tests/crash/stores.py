"""Stores by URL. An opener is named `package.module:function`, so that a child can find it too."""

import pkgutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias, cast

from tests.keys import KEY

from mainspring.core.errors import InvalidInput
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store

Opener: TypeAlias = Callable[[str], AbstractAsyncContextManager[Store]]

OPENER = "tests.crash.stores:open_store"

_POSTGRES = "mainspring.log.postgres:open_postgres"


def open_store(url: str) -> AbstractAsyncContextManager[Store]:
    """`sqlite:///path`, a path, or `postgresql://…`."""
    if is_sqlite(url):
        return open_sqlite(Path(url.removeprefix("sqlite:///")), key=KEY)
    opener = cast("Callable[..., AbstractAsyncContextManager[Store]]", named(_POSTGRES))
    return opener(url, key=KEY)


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite:///") or "://" not in url


def named(opener: str) -> Opener:
    """Raises: InvalidInput: there is no such function."""
    try:
        return cast("Opener", pkgutil.resolve_name(opener))
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"no store opener {opener}: {error}") from error


def preload(url: str, opener: str) -> None:
    """Import everything that opening needs, once, before children are forked."""
    named(opener)
    if not is_sqlite(url):
        named(_POSTGRES)
