"""Routes of plain resources: create, list, get, update, archive and delete, declared as data."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, Handler, Route
from mainspring.service.access.principal import Role
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery

Action: TypeAlias = Literal["create", "list", "get", "update", "archive", "delete"]
_QUERY_NAMES = {"created_at_gte": "created_from", "created_at_lte": "created_upto"}


class PageQuery(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None


def list_query(query: Struct) -> ListQuery:
    """The fields of a route's query, by the names that repositories use."""
    fields = msgspec.structs.asdict(query)
    return ListQuery(**{_QUERY_NAMES.get(name, name): value for name, value in fields.items()})


def forward(function: Callable[..., Awaitable[Any]], path: str) -> Handler:
    """A handler that calls `function` with the tenant, the ids in the path and, if there are any,
    the body and the query."""
    names = _path_names(path)

    async def handle(call: ApiCall[Any, Any]) -> Any:  # noqa: ANN401 (whatever the function returns)
        arguments: list[object] = [call[name] for name in names]
        if not isinstance(call.body, Empty):
            arguments.append(call.body)
        if not isinstance(call.query, Empty):
            arguments.append(list_query(call.query))
        return await function(call.tenant, *arguments)

    return handle


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource that a service stores under its tenant. It has the actions that have a summary."""

    path: str
    """Of one item: `/v1/vaults/{vault_id}`."""
    service: Any  # has the methods create, page, get, update, archive, delete, as far as needed
    item: Any
    summaries: Mapping[Action, str]
    query: type[Struct] = PageQuery
    create: Any = Empty
    created: Any = None
    """What creating one returns, if not the item."""
    update: Any = Empty
    deleted: Any = None
    """Returned by delete: a struct with the id."""
    read_role: Role = "viewer"
    write_role: Role = "operator"
    is_extension: bool = False

    def routes(self) -> tuple[Route, ...]:
        return tuple(self._route(action) for action in self.summaries)

    def _route(self, action: Action) -> Route:
        role = self.read_role if action in ("list", "get") else self.write_role
        build = partial(
            Route, summary=self.summaries[action], role=role, is_extension=self.is_extension
        )
        one, (collection, _, _), service = self.path, self.path.rpartition("/"), self.service
        match action:
            case "create":
                handle = forward(service.create, collection)
                answer = self.created or self.item
                return build(
                    method="POST",
                    path=collection,
                    handle=handle,
                    body=self.create,
                    response_type=answer,
                )
            case "list":
                handle = forward(service.page, collection)
                answer = Page[self.item]
                return build(
                    method="GET",
                    path=collection,
                    handle=handle,
                    query=self.query,
                    response_type=answer,
                )
            case "get":
                handle = forward(service.get, one)
                return build(method="GET", path=one, handle=handle, response_type=self.item)
            case "update":
                handle = forward(service.update, one)
                return build(
                    method="POST",
                    path=one,
                    handle=handle,
                    body=self.update,
                    response_type=self.item,
                )
            case "archive":
                path = f"{one}/archive"
                handle = forward(service.archive, path)
                return build(method="POST", path=path, handle=handle, response_type=self.item)
            case "delete":
                return build(
                    method="DELETE", path=one, handle=self._delete, response_type=self.deleted
                )

    async def _delete(self, call: ApiCall[Any, Any]) -> Any:  # noqa: ANN401 (the `deleted` struct)
        await forward(self.service.delete, self.path)(call)
        return self.deleted(id=call[_path_names(self.path)[-1]])


def _path_names(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)
