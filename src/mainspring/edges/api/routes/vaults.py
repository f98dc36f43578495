"""`/v1/vaults` and the credentials in them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.edges.api.resource import Resource, forward
from mainspring.edges.api.route import Route
from mainspring.service.vaults.credential_record import VaultCredential
from mainspring.service.vaults.credential_validation import (
    CredentialValidation,
    CredentialValidator,
)
from mainspring.service.vaults.credentials import CreateCredential, Credentials, UpdateCredential
from mainspring.service.vaults.vaults import CreateVault, UpdateVault, VaultObject, Vaults

_VAULT = "/v1/vaults/{vault_id}"
_CREDENTIAL = f"{_VAULT}/credentials/{{credential_id}}"


class ListVaults(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
    include_archived: bool = False


class DeletedVault(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["vault_deleted"] = "vault_deleted"


class DeletedCredential(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["vault_credential_deleted"] = "vault_credential_deleted"


def vault_routes(vaults: Vaults) -> tuple[Route, ...]:
    return Resource(
        path=_VAULT,
        service=vaults,
        item=VaultObject,
        create=CreateVault,
        update=UpdateVault,
        query=ListVaults,
        deleted=DeletedVault,
        read_role="user",
        summaries={
            "create": "Create a vault",
            "list": "List vaults",
            "get": "Get a vault",
            "update": "Update a vault",
            "archive": "Archive a vault: its secrets are deleted and no new session can use it",
            "delete": "Delete a vault and everything in it",
        },
    ).routes()


def credential_routes(
    credentials: Credentials, validator: CredentialValidator
) -> tuple[Route, ...]:
    validate = f"{_CREDENTIAL}/mcp_oauth_validate"
    return (
        *Resource(
            path=_CREDENTIAL,
            service=credentials,
            item=VaultCredential,
            create=CreateCredential,
            update=UpdateCredential,
            query=ListVaults,
            deleted=DeletedCredential,
            read_role="user",
            summaries={
                "create": "Add a credential to a vault",
                "list": "List the credentials of a vault, without their secrets",
                "get": "Get a credential, without its secrets",
                "update": "Update a credential or its secrets",
                "archive": "Archive a credential and delete its secrets",
                "delete": "Delete a credential",
            },
        ).routes(),
        Route(
            method="POST",
            path=validate,
            handle=forward(validator.validate, validate),
            summary="Check with the MCP server whether a credential works",
            response_type=CredentialValidation,
            role="operator",
        ),
    )
