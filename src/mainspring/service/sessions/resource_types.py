"""Resources of a session beside its agent: files, repositories, memory stores; and how they are
looked up. Mounting them is the worker's job.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Literal, TypeAlias, assert_never

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.ids import FileId, MemoryStoreId
from mainspring.core.ports import Seal
from mainspring.service.resources.environments import EnvironmentConfig, SelfHostedConfig
from mainspring.service.resources.file_resources import Files
from mainspring.service.storage.metadata import copy_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    content: bytes
    media_type: str
    name: str = ""


def file_content(files: Files) -> Callable[[str, str], Awaitable[FileContent]]:
    """A function that reads files by tenant and id. Raises: NotFound."""

    async def read(tenant: str, file_id: str) -> FileContent:
        file, content = await files.content(tenant, file_id)
        return FileContent(content=content, media_type=file.mime_type, name=file.filename)

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStoreInfo:
    """The part of a memory store's record that a session sees."""

    name: str
    description: str = ""


CheckResource: TypeAlias = Callable[[str, str], Awaitable[object]]
"""Checks a resource by tenant and id. Raises `NotFound`; `InvalidInput` if it is archived."""


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


MAX_RESOURCES = 100  # of a session
MAX_STORES = 8  # the Managed Agents API's own limit
Path = Annotated[str, Meta(min_length=1, max_length=1024)]
Token = Annotated[str, Meta(min_length=1, max_length=8192)]
_REPOSITORY = re.compile(r"https://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?(/[A-Za-z0-9._~+-]{1,255})+/?")
StoreAccess: TypeAlias = Literal["read_write", "read_only"]


class BranchCheckout(Struct, frozen=True, kw_only=True, tag_field="type", tag="branch"):
    name: Annotated[str, Meta(min_length=1, max_length=255)]


class CommitCheckout(Struct, frozen=True, kw_only=True, tag_field="type", tag="commit"):
    sha: Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]


Checkout: TypeAlias = BranchCheckout | CommitCheckout


class FileResource(Struct, frozen=True, kw_only=True, tag_field="type", tag="file"):
    id: str
    file_id: str
    mount_path: str
    created_at: datetime
    updated_at: datetime


class RepositoryResource(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="github_repository"
):
    """A repository. Its token is sealed in the session's record, and never shown."""

    id: str
    url: str
    mount_path: str
    created_at: datetime
    updated_at: datetime
    checkout: Checkout | None = None


class StoreResource(Struct, frozen=True, kw_only=True, tag_field="type", tag="memory_store"):
    id: str
    memory_store_id: str
    access: StoreAccess
    description: str
    mount_path: str
    name: str
    created_at: datetime
    updated_at: datetime
    instructions: str | None = None


SessionResource: TypeAlias = FileResource | RepositoryResource | StoreResource


class FileResourceParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="file"):
    file_id: FileId
    mount_path: Path | None = None


class RepositoryResourceParams(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="github_repository"
):
    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    authorization_token: Token | None = None
    checkout: Checkout | None = None
    mount_path: Path | None = None


class StoreResourceParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="memory_store"):
    memory_store_id: MemoryStoreId
    access: StoreAccess | None = None
    instructions: Annotated[str, Meta(max_length=4096)] | None = None


ResourceParams: TypeAlias = FileResourceParams | RepositoryResourceParams | StoreResourceParams
ResourcesParams = Annotated[tuple[ResourceParams, ...], Meta(max_length=MAX_RESOURCES)]


@dataclass(frozen=True, slots=True)
class AttachedResource:
    resource: SessionResource
    sealed: bytes | None = None
    """The sealed token of a repository."""


async def attach_resource(
    lookups: ResourceLookups, tenant: str, params: ResourceParams, *, id_: str, now: datetime
) -> AttachedResource:
    """Raises: NotFound, InvalidInput."""
    new = {"id": id_, "created_at": now, "updated_at": now}
    match params:
        case FileResourceParams():
            await lookups.check_file(tenant, params.file_id)
            path = params.mount_path or f"/mnt/session/uploads/{params.file_id}"
            return AttachedResource(
                copy_fields(FileResource, params, mount_path=_check_mount_path(path), **new)
            )
        case RepositoryResourceParams():
            name = repository_name(params.url)
            path = params.mount_path or f"/workspace/{name}"
            mount_path = _check_mount_path(path)
            resource = copy_fields(RepositoryResource, params, mount_path=mount_path, **new)
            token = params.authorization_token
            return AttachedResource(
                resource, None if token is None else seal_token(lookups, id_, token)
            )
        case StoreResourceParams():
            store = await lookups.memory_store(tenant, params.memory_store_id)
            return AttachedResource(
                copy_fields(
                    StoreResource,
                    params,
                    access=params.access or "read_write",
                    name=store.name,
                    description=store.description,
                    mount_path=f"/mnt/memory/{_slug(store.name) or params.memory_store_id}",
                    **new,
                )
            )
        case _:
            assert_never(params)


def check_resources(resources: Sequence[SessionResource], environment: EnvironmentConfig) -> None:
    """Raises: InvalidInput: two have the same path, or the environment cannot mount them."""
    if isinstance(environment, SelfHostedConfig):
        for resource in resources:
            if not isinstance(resource, StoreResource):
                raise InvalidInput(
                    "resources: a self-hosted environment has no files or repositories; put them"
                    " on the machine of its worker"
                )
    if len(resources) > MAX_RESOURCES:
        raise InvalidInput(f"resources: at most {MAX_RESOURCES}")
    stores = [
        resource.memory_store_id for resource in resources if isinstance(resource, StoreResource)
    ]
    if len(stores) > MAX_STORES:
        raise InvalidInput(f"resources: at most {MAX_STORES} memory stores")
    if len(set(stores)) < len(stores):
        raise InvalidInput("resources: a memory store must not occur twice")
    paths = [resource.mount_path for resource in resources]
    if repeated := sorted({path for path in paths if paths.count(path) > 1}):
        raise InvalidInput(f"resources: two have the mount_path {repeated[0]}")


def seal_token(lookups: ResourceLookups, resource_id: str, token: str) -> bytes:
    return lookups.seal.seal(token.encode(), token_context(resource_id))


def token_context(resource_id: str) -> str:
    """The context that seals the token of a repository."""
    return f"session_resource:{resource_id}"


def _check_mount_path(path: str) -> str:
    parts = PurePosixPath(path)
    is_plain = parts.is_absolute() and ".." not in parts.parts and "\0" not in path
    if not is_plain or len(parts.parts) < 2:
        raise InvalidInput(f"mount_path: {path!r} must be absolute, below /, and without ..")
    return str(parts)


def repository_name(url: str) -> str:
    """The name of a repository, from its URL. URLs that git might parse differently are refused.

    Raises: InvalidInput.
    """
    if "@" in url:
        raise InvalidInput("url: must not contain a secret; use authorization_token")
    name = PurePosixPath(url).name.removesuffix(".git")
    if not _REPOSITORY.fullmatch(url) or name in ("", ".", ".."):
        raise InvalidInput("url: must have the form https://github.com/owner/repository")
    return name


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()[:100]).strip("-")
