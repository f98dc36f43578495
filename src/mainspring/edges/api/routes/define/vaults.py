"""`/v1/vaults` and the credentials in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, ShortPageQuery, list_query, route
from mainspring.service.storage.pagination import Page
from mainspring.service.vaults.credential_validation import (
    CredentialValidation,
    CredentialValidator,
)
from mainspring.service.vaults.credentials import CreateCredential, Credentials, UpdateCredential
from mainspring.service.vaults.vaults import (
    CreateVault,
    UpdateVault,
    VaultCredential,
    VaultObject,
    Vaults,
)


class ListVaults(ShortPageQuery, frozen=True, kw_only=True):
    include_archived: bool = False


class DeletedVault(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["vault_deleted"] = "vault_deleted"


class DeletedCredential(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["vault_credential_deleted"] = "vault_credential_deleted"


@dataclass(frozen=True, slots=True)
class VaultRoutes:
    vaults: Vaults

    @route("POST /v1/vaults", "Create a vault")
    async def create(self, call: ApiCall[Empty, CreateVault]) -> VaultObject:
        return await self.vaults.create(call.tenant, call.body)

    @route("GET /v1/vaults", "List vaults", role="user")
    async def list(self, call: ApiCall[ListVaults, Empty]) -> Page[VaultObject]:
        return await self.vaults.page(call.tenant, list_query(call.query))

    @route("GET /v1/vaults/{vault_id}", "Get a vault", role="user")
    async def get(self, call: ApiCall[Empty, Empty]) -> VaultObject:
        return await self.vaults.get(call.tenant, call["vault_id"])

    @route("POST /v1/vaults/{vault_id}", "Update a vault")
    async def update(self, call: ApiCall[Empty, UpdateVault]) -> VaultObject:
        return await self.vaults.update(call.tenant, call["vault_id"], call.body)

    @route(
        "POST /v1/vaults/{vault_id}/archive",
        "Archive a vault: its secrets are deleted and no new session can use it",
    )
    async def archive(self, call: ApiCall[Empty, Empty]) -> VaultObject:
        return await self.vaults.archive(call.tenant, call["vault_id"])

    @route("DELETE /v1/vaults/{vault_id}", "Delete a vault and everything in it")
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedVault:
        await self.vaults.delete(call.tenant, call["vault_id"])
        return DeletedVault(id=call["vault_id"])


@dataclass(frozen=True, slots=True)
class CredentialRoutes:
    credentials: Credentials
    validator: CredentialValidator

    @route("POST /v1/vaults/{vault_id}/credentials", "Add a credential to a vault")
    async def create(self, call: ApiCall[Empty, CreateCredential]) -> VaultCredential:
        return await self.credentials.create(call.tenant, call["vault_id"], call.body)

    @route(
        "GET /v1/vaults/{vault_id}/credentials",
        "List the credentials of a vault, without their secrets",
        role="user",
    )
    async def list(self, call: ApiCall[ListVaults, Empty]) -> Page[VaultCredential]:
        return await self.credentials.page(call.tenant, call["vault_id"], list_query(call.query))

    @route(
        "GET /v1/vaults/{vault_id}/credentials/{credential_id}",
        "Get a credential, without its secrets",
        role="user",
    )
    async def get(self, call: ApiCall[Empty, Empty]) -> VaultCredential:
        return await self.credentials.get(call.tenant, call["vault_id"], call["credential_id"])

    @route(
        "POST /v1/vaults/{vault_id}/credentials/{credential_id}",
        "Update a credential or its secrets",
    )
    async def update(self, call: ApiCall[Empty, UpdateCredential]) -> VaultCredential:
        return await self.credentials.update(
            call.tenant, call["vault_id"], call["credential_id"], call.body
        )

    @route(
        "POST /v1/vaults/{vault_id}/credentials/{credential_id}/archive",
        "Archive a credential and delete its secrets",
    )
    async def archive(self, call: ApiCall[Empty, Empty]) -> VaultCredential:
        return await self.credentials.archive(call.tenant, call["vault_id"], call["credential_id"])

    @route("DELETE /v1/vaults/{vault_id}/credentials/{credential_id}", "Delete a credential")
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedCredential:
        await self.credentials.delete(call.tenant, call["vault_id"], call["credential_id"])
        return DeletedCredential(id=call["credential_id"])

    @route(
        "POST /v1/vaults/{vault_id}/credentials/{credential_id}/mcp_oauth_validate",
        "Check with the MCP server whether a credential works",
    )
    async def validate(self, call: ApiCall[Empty, Empty]) -> CredentialValidation:
        return await self.validator.validate(call.tenant, call["vault_id"], call["credential_id"])
