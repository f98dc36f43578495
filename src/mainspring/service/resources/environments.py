"""Environments: where a session's hands work, kept by name for the sessions of a tenant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.log.records import Records
from mainspring.service.storage.metadata import Metadata, MetadataPatch, patch_metadata
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Hosts = Annotated[tuple[str, ...], Meta(max_length=256)]
PackageList: TypeAlias = tuple[str, ...]
EnvironmentScope: TypeAlias = Literal["organization"]
"""Who sees an environment: everybody in its workspace. There is no other."""


class UnrestrictedNetwork(Struct, frozen=True, kw_only=True, tag_field="type", tag="unrestricted"):
    pass


class LimitedNetwork(Struct, frozen=True, kw_only=True, tag_field="type", tag="limited"):
    allowed_hosts: Hosts = ()
    allow_mcp_servers: bool = False
    allow_package_managers: bool = False


class Packages(Struct, frozen=True, kw_only=True):
    apt: PackageList = ()
    cargo: PackageList = ()
    gem: PackageList = ()
    go: PackageList = ()
    npm: PackageList = ()
    pip: PackageList = ()
    type: Literal["packages"] = "packages"


class CloudConfig(Struct, frozen=True, kw_only=True, tag_field="type", tag="cloud"):
    """Hands in a sandbox of the worker that runs the session."""

    networking: UnrestrictedNetwork | LimitedNetwork = LimitedNetwork()
    packages: Packages = Packages()


class SelfHostedConfig(Struct, frozen=True, kw_only=True, tag_field="type", tag="self_hosted"):
    """Hands of the client's own: a worker of theirs polls for the work."""


EnvironmentConfig: TypeAlias = CloudConfig | SelfHostedConfig


class Environment(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    config: EnvironmentConfig
    created_at: datetime
    updated_at: datetime
    description: str | None = None
    metadata: Metadata = {}
    scope: EnvironmentScope = "organization"
    archived_at: datetime | None = None
    type: Literal["environment"] = "environment"


class CreateEnvironment(Struct, frozen=True, kw_only=True):
    name: Name
    config: EnvironmentConfig | None = None
    description: str | None = None
    metadata: Metadata = {}
    scope: Literal["organization", "account"] | None = None


class UpdateEnvironment(Struct, frozen=True, kw_only=True):
    name: Name | UnsetType | None = UNSET
    config: EnvironmentConfig | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType = UNSET
    scope: Literal["organization", "account"] | UnsetType | None = UNSET


class Environments:
    def __init__(
        self,
        records: Records,
        *,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._repository = Repository(
            records, "environment", Environment, columns=_index_columns, clock=clock
        )
        self._clock = clock
        self._new_id = new_id

    async def create(self, tenant: str, request: CreateEnvironment) -> Environment:
        """Raises: AlreadyThere: the name is taken. InvalidInput: nobody else can be kept out."""
        _check_scope(request.scope)
        now = self._clock()
        return await self._repository.put(
            tenant,
            Environment(
                id=self._new_id("env"),
                name=request.name,
                config=request.config or CloudConfig(),
                description=request.description,
                metadata=request.metadata,
                created_at=now,
                updated_at=now,
            ),
        )

    async def get(self, tenant: str, environment_id: str) -> Environment:
        return await self._repository.get(tenant, environment_id)

    async def update(
        self, tenant: str, environment_id: str, request: UpdateEnvironment
    ) -> Environment:
        """Sessions that were made with it go on as it was for them.

        Raises: InvalidInput: it would become an environment of the other kind, or one account's.
        """
        _check_scope(request.scope)

        def change(current: Environment) -> Environment:
            config = request.config or current.config
            if type(config) is not type(current.config):
                raise InvalidInput("config.type: an environment stays what it is; make another")
            return replace(
                current,
                name=request.name or current.name,
                config=config,
                description=(
                    current.description if request.description is UNSET else request.description
                ),
                metadata=patch_metadata(current.metadata, _without_empty(request.metadata)),
                updated_at=self._clock(),
            )

        return await self._repository.update(tenant, environment_id, change)

    async def archive(self, tenant: str, environment_id: str) -> Environment:
        """No new sessions with it; those that have it go on."""

        def change(current: Environment) -> Environment:
            now = self._clock()
            return replace(current, archived_at=current.archived_at or now, updated_at=now)

        return await self._repository.update(tenant, environment_id, change)

    async def delete(self, tenant: str, environment_id: str) -> None:
        await self._repository.remove(tenant, environment_id)

    async def page(self, tenant: str, list_query: ListQuery) -> Page[Environment]:
        return await self._repository.page(tenant, list_query)


def _check_scope(scope: str | UnsetType | None) -> None:
    if scope == "account":
        raise InvalidInput("scope: an environment is visible to the whole workspace: organization")


def _without_empty(patch: MetadataPatch | UnsetType) -> MetadataPatch | UnsetType:
    """An empty text takes a pair out, as the API has it for environments and nothing else."""
    if isinstance(patch, UnsetType):
        return patch
    return {key: value or None for key, value in patch.items()}


def _index_columns(environment: Environment) -> IndexColumns:
    is_archived = environment.archived_at is not None
    return IndexColumns(name=None if is_archived else environment.name, is_archived=is_archived)
