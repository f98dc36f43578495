"""`/v1/environments`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mainspring.edges.api.resource import PageQuery, Resource
from mainspring.edges.api.route import Route
from mainspring.service.resources.environments import (
    CreateEnvironment,
    Environment,
    Environments,
    UpdateEnvironment,
)


class ListEnvironments(PageQuery, frozen=True, kw_only=True):
    include_archived: bool = False


class DeletedEnvironment(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["environment_deleted"] = "environment_deleted"


def environment_routes(environments: Environments) -> tuple[Route, ...]:
    return Resource(
        path="/v1/environments/{environment_id}",
        service=environments,
        item=Environment,
        create=CreateEnvironment,
        update=UpdateEnvironment,
        query=ListEnvironments,
        deleted=DeletedEnvironment,
        summaries={
            "create": "Create an environment",
            "list": "List environments",
            "get": "Get an environment",
            "update": "Update an environment",
            "archive": "Archive an environment: no new session can use it",
            "delete": "Delete an environment",
        },
    ).routes()
