"""How a session looks up what other services store for it: files, vaults, memory stores; and the
seal for its secrets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from mainspring.core.errors import NotFound
from mainspring.service.resources.file_resources import Files
from mainspring.service.storage.repository import Seal


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    content: bytes
    media_type: str
    name: str = ""


def file_content(files: Files) -> Callable[[str, str], Awaitable[FileContent]]:
    """Reads files by tenant and id. Raises: NotFound."""

    async def read(tenant: str, file_id: str) -> FileContent:
        file, content = await files.content(tenant, file_id)
        return FileContent(content=content, media_type=file.mime_type, name=file.filename)

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStoreInfo:
    """What a session is told about a memory store."""

    name: str
    description: str = ""


CheckResource: TypeAlias = Callable[[str, str], Awaitable[object]]
"""Tenant and id. Raises `NotFound` if there is no such thing, `InvalidInput` if it is of no use
any more."""


async def _no_file(_tenant: str, id_: str) -> FileContent:
    raise NotFound("file", id_)


async def _no_store(_tenant: str, id_: str) -> MemoryStoreInfo:
    raise NotFound("memory_store", id_)


async def _no_vault(_tenant: str, id_: str) -> object:
    raise NotFound("vault", id_)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLookups:
    seal: Seal
    file_content: Callable[[str, str], Awaitable[FileContent]] = _no_file
    check_file: CheckResource = _no_file
    check_vault: CheckResource = _no_vault
    is_priced: Callable[[str], bool] = lambda _: True
    """Whether a model has a list price: a budget needs one."""
    memory_store: Callable[[str, str], Awaitable[MemoryStoreInfo]] = _no_store
