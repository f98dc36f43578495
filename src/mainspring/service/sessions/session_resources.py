"""Resources of an existing session: list, add, remove, replace tokens."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import ids
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.resource_types import (
    FileResourceParams,
    RepositoryResource,
    SessionResource,
    StoreResource,
    Token,
    attach_resource,
    check_resources,
    seal_token,
)
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page, cut_page, decode_cursor


class UpdateResource(Struct, frozen=True, kw_only=True):
    authorization_token: Token


class SessionResources:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def page(
        self,
        principal: Principal,
        session_id: str,
        *,
        limit: int | None = None,
        page: str | None = None,
    ) -> Page[SessionResource]:
        """The resources in the order in which they were added; all of them without a `limit`."""
        resources = (await self._sessions.record(principal, session_id)).resources
        start = 0 if page is None else _after_cursor(resources, page)
        return cut_page(resources[start:], limit or len(resources), lambda item: (item.id,))

    async def get(self, principal: Principal, session_id: str, resource_id: str) -> SessionResource:
        """Raises: NotFound."""
        return _find_resource(await self._sessions.record(principal, session_id), resource_id)

    async def add(
        self, principal: Principal, session_id: str, params: FileResourceParams
    ) -> SessionResource:
        """Only files can be added to an existing session. Raises: NotFound, InvalidInput."""
        await self._changeable(principal, session_id)
        added = await attach_resource(
            self._sessions.dependencies.lookups,
            principal.tenant,
            params,
            id_=ids.new_id("sesrsc"),
            now=self._sessions.clock(),
        )

        def change(current: SessionRecord) -> SessionRecord:
            resources = (*current.resources, added.resource)
            check_resources(resources, current.environment)
            return replace(current, resources=resources, updated_at=added.resource.created_at)

        await self._sessions.repository.update(principal.tenant, session_id, change)
        return added.resource

    async def update(
        self, principal: Principal, session_id: str, resource_id: str, request: UpdateResource
    ) -> SessionResource:
        """Raises: NotFound, InvalidInput: it has no token."""
        await self._changeable(principal, session_id)
        now = self._sessions.clock()
        sealed = seal_token(
            self._sessions.dependencies.lookups, resource_id, request.authorization_token
        )

        def change(current: SessionRecord) -> SessionRecord:
            resource = _find_resource(current, resource_id)
            if not isinstance(resource, RepositoryResource):
                raise InvalidInput("authorization_token: allowed only for a github_repository")
            resources = tuple(
                replace(item, updated_at=now) if item.id == resource_id else item
                for item in current.resources
            )
            return replace(
                current,
                resources=resources,
                sealed={**current.sealed, resource_id: sealed},
                updated_at=now,
            )

        changed = await self._sessions.repository.update(principal.tenant, session_id, change)
        return _find_resource(changed, resource_id)

    async def delete(self, principal: Principal, session_id: str, resource_id: str) -> None:
        """Raises: NotFound, InvalidInput: a memory store stays with its session."""
        await self._changeable(principal, session_id)
        now = self._sessions.clock()

        def change(current: SessionRecord) -> SessionRecord:
            if isinstance(_find_resource(current, resource_id), StoreResource):
                raise InvalidInput("a memory_store cannot be removed from its session")
            return replace(
                current,
                resources=tuple(
                    resource for resource in current.resources if resource.id != resource_id
                ),
                sealed={id_: seal for id_, seal in current.sealed.items() if id_ != resource_id},
                updated_at=now,
            )

        await self._sessions.repository.update(principal.tenant, session_id, change)

    async def _changeable(self, principal: Principal, session_id: str) -> None:
        record = await self._sessions.record(principal, session_id)
        if record.archived_at is not None:
            raise InvalidInput(f"session {session_id} is archived and cannot be changed")


def _find_resource(record: SessionRecord, resource_id: str) -> SessionResource:
    for resource in record.resources:
        if resource.id == resource_id:
            return resource
    raise NotFound("resource", resource_id)


def _after_cursor(resources: tuple[SessionResource, ...], cursor: str) -> int:
    [last] = decode_cursor(cursor, tuple[str])
    ids = [resource.id for resource in resources]
    return ids.index(last) + 1 if last in ids else len(ids)
