"""Environments: where a session's tools run, stored by name for the sessions of a tenant."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.log.records import Records
from mainspring.service.storage.metadata import (
    Metadata,
    MetadataPatch,
    apply_patch,
    copy_fields,
    patch_metadata,
)
from mainspring.service.storage.repository import IndexColumns, Repository

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Hosts = Annotated[tuple[str, ...], Meta(max_length=256)]
PackageList: TypeAlias = tuple[str, ...]
EnvironmentScope: TypeAlias = Literal["organization"]
"""The scope of an environment: everybody in its workspace. There is no other scope."""


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
    """Tools run in a sandbox of the worker that runs the session."""

    networking: UnrestrictedNetwork | LimitedNetwork = LimitedNetwork()
    packages: Packages = Packages()


class SelfHostedConfig(Struct, frozen=True, kw_only=True, tag_field="type", tag="self_hosted"):
    """Tools run on the client's machines: a worker there polls for work."""


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
    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._repository = Repository(
            records, "environment", Environment, columns=_index_columns, clock=clock
        )
        self.get = self._repository.get
        self.page = self._repository.page
        self.delete = self._repository.remove
        self._clock = clock

    async def create(self, tenant: str, request: CreateEnvironment) -> Environment:
        """Raises: AlreadyExists: the name is taken. InvalidInput: the scope is not supported."""
        _check_scope(request.scope)
        now = self._clock()
        environment = copy_fields(
            Environment,
            request,
            id=ids.new_id("env"),
            config=request.config or CloudConfig(),
            scope="organization",
            created_at=now,
            updated_at=now,
        )
        return await self._repository.put(tenant, environment)

    async def update(
        self, tenant: str, environment_id: str, request: UpdateEnvironment
    ) -> Environment:
        """Update an environment; sessions that were created with it keep the previous
        configuration.

        Raises: InvalidInput: the type of the configuration or the scope would change.
        """
        _check_scope(request.scope)

        def change(current: Environment) -> Environment:
            config = request.config or current.config
            if type(config) is not type(current.config):
                raise InvalidInput("config.type: cannot be changed; create another environment")
            return apply_patch(
                current,
                request,
                name=request.name or current.name,
                config=config,
                scope=current.scope,
                metadata=patch_metadata(current.metadata, _without_empty(request.metadata)),
                updated_at=self._clock(),
            )

        return await self._repository.update(tenant, environment_id, change)

    async def archive(self, tenant: str, environment_id: str) -> Environment:
        """Archive an environment: no new sessions can use it; existing ones continue."""

        def change(current: Environment) -> Environment:
            now = self._clock()
            return replace(current, archived_at=current.archived_at or now, updated_at=now)

        return await self._repository.update(tenant, environment_id, change)


def _check_scope(scope: str | UnsetType | None) -> None:
    if scope == "account":
        raise InvalidInput("scope: must be organization")


def _without_empty(patch: MetadataPatch | UnsetType) -> MetadataPatch | UnsetType:
    """Treat an empty value as removal: the API has this rule for environments only."""
    if isinstance(patch, UnsetType):
        return patch
    return {key: value or None for key, value in patch.items()}


def _index_columns(environment: Environment) -> IndexColumns:
    is_archived = environment.archived_at is not None
    return IndexColumns(name=None if is_archived else environment.name, is_archived=is_archived)
