"""`/v1/vaults` and the credentials in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery
from mainspring.service.vaults.credential_record import VaultCredential
from mainspring.service.vaults.credential_validation import (
    CredentialValidation,
    CredentialValidator,
)
from mainspring.service.vaults.credentials import CreateCredential, Credentials, UpdateCredential
from mainspring.service.vaults.vaults import CreateVault, UpdateVault, VaultObject, Vaults

_VAULTS = "/v1/vaults"
_VAULT = "/v1/vaults/{vault_id}"
_CREDENTIALS = f"{_VAULT}/credentials"
_CREDENTIAL = f"{_CREDENTIALS}/{{credential_id}}"


class ListVaults(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
    include_archived: bool = False

    def listing(self) -> ListQuery:
        return ListQuery(limit=self.limit, page=self.page, include_archived=self.include_archived)


class DeletedVault(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["vault_deleted"] = "vault_deleted"


class DeletedCredential(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["vault_credential_deleted"] = "vault_credential_deleted"


@dataclass(frozen=True, slots=True)
class VaultRoutes:
    vaults: Vaults

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path=_VAULTS,
                handle=self.create,
                summary="Make a vault",
                body=CreateVault,
                response_type=VaultObject,
                role="operator",
            ),
            Route(
                method="GET",
                path=_VAULTS,
                handle=self.list,
                summary="List vaults",
                query=ListVaults,
                response_type=Page[VaultObject],
                role="user",
            ),
            Route(
                method="GET",
                path=_VAULT,
                handle=self.get,
                summary="Look at a vault",
                response_type=VaultObject,
                role="user",
            ),
            Route(
                method="POST",
                path=_VAULT,
                handle=self.update,
                summary="Change a vault",
                body=UpdateVault,
                response_type=VaultObject,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{_VAULT}/archive",
                handle=self.archive,
                summary="Forget the secrets of a vault and have no new sessions with it",
                response_type=VaultObject,
                role="operator",
            ),
            Route(
                method="DELETE",
                path=_VAULT,
                handle=self.delete,
                summary="Delete a vault with all that is in it",
                response_type=DeletedVault,
                role="operator",
            ),
        )

    async def create(self, api_call: ApiCall[Empty, CreateVault]) -> VaultObject:
        return await self.vaults.create(api_call.tenant, api_call.body)

    async def list(self, api_call: ApiCall[ListVaults, Empty]) -> Page[VaultObject]:
        return await self.vaults.page(api_call.tenant, api_call.query.listing())

    async def get(self, api_call: ApiCall[Empty, Empty]) -> VaultObject:
        return await self.vaults.get(api_call.tenant, api_call["vault_id"])

    async def update(self, api_call: ApiCall[Empty, UpdateVault]) -> VaultObject:
        return await self.vaults.update(api_call.tenant, api_call["vault_id"], api_call.body)

    async def archive(self, api_call: ApiCall[Empty, Empty]) -> VaultObject:
        return await self.vaults.archive(api_call.tenant, api_call["vault_id"])

    async def delete(self, api_call: ApiCall[Empty, Empty]) -> DeletedVault:
        await self.vaults.delete(api_call.tenant, api_call["vault_id"])
        return DeletedVault(id=api_call["vault_id"])


@dataclass(frozen=True, slots=True)
class CredentialRoutes:
    credentials: Credentials
    credential_validator: CredentialValidator

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path=_CREDENTIALS,
                handle=self.create,
                summary="Put a credential into a vault",
                body=CreateCredential,
                response_type=VaultCredential,
                role="operator",
            ),
            Route(
                method="GET",
                path=_CREDENTIALS,
                handle=self.list,
                summary="List the credentials of a vault, without their secrets",
                query=ListVaults,
                response_type=Page[VaultCredential],
                role="user",
            ),
            Route(
                method="GET",
                path=_CREDENTIAL,
                handle=self.get,
                summary="Look at a credential, without its secrets",
                response_type=VaultCredential,
                role="user",
            ),
            Route(
                method="POST",
                path=_CREDENTIAL,
                handle=self.update,
                summary="Change a credential or its secrets",
                body=UpdateCredential,
                response_type=VaultCredential,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{_CREDENTIAL}/archive",
                handle=self.archive,
                summary="Forget the secrets of a credential",
                response_type=VaultCredential,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{_CREDENTIAL}/mcp_oauth_validate",
                handle=self.validate,
                summary="Ask the MCP server whether a credential works",
                response_type=CredentialValidation,
                role="operator",
            ),
            Route(
                method="DELETE",
                path=_CREDENTIAL,
                handle=self.delete,
                summary="Delete a credential",
                response_type=DeletedCredential,
                role="operator",
            ),
        )

    async def create(self, api_call: ApiCall[Empty, CreateCredential]) -> VaultCredential:
        return await self.credentials.create(api_call.tenant, api_call["vault_id"], api_call.body)

    async def list(self, api_call: ApiCall[ListVaults, Empty]) -> Page[VaultCredential]:
        listing = api_call.query.listing()
        return await self.credentials.page(api_call.tenant, api_call["vault_id"], listing)

    async def get(self, api_call: ApiCall[Empty, Empty]) -> VaultCredential:
        return await self.credentials.get(
            api_call.tenant, api_call["vault_id"], api_call["credential_id"]
        )

    async def update(self, api_call: ApiCall[Empty, UpdateCredential]) -> VaultCredential:
        return await self.credentials.update(
            api_call.tenant, api_call["vault_id"], api_call["credential_id"], api_call.body
        )

    async def archive(self, api_call: ApiCall[Empty, Empty]) -> VaultCredential:
        return await self.credentials.archive(
            api_call.tenant, api_call["vault_id"], api_call["credential_id"]
        )

    async def validate(self, api_call: ApiCall[Empty, Empty]) -> CredentialValidation:
        return await self.credential_validator.validate(
            api_call.tenant, api_call["vault_id"], api_call["credential_id"]
        )

    async def delete(self, api_call: ApiCall[Empty, Empty]) -> DeletedCredential:
        await self.credentials.delete(
            api_call.tenant, api_call["vault_id"], api_call["credential_id"]
        )
        return DeletedCredential(id=api_call["credential_id"])
