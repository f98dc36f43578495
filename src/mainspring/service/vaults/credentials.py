"""Credentials: how a session's agent authenticates elsewhere. Secrets are sealed; only `unseal`
returns them, and no route calls it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import Seal
from mainspring.log.records import RecordChange, RecordRow, Records, Remove, Replace
from mainspring.service.storage.metadata import Metadata, MetadataPatch, copy_fields, patch_metadata
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import (
    ListQuery,
    Notify,
    ignore_notification,
    optional_micros,
)
from mainspring.service.vaults.credential_auth import (
    Auth,
    AuthPatch,
    NewAuth,
    Secrets,
    patch_auth,
    redacted_repr,
    split_secrets,
)
from mainspring.service.vaults.vaults import (
    CREDENTIAL_KIND,
    PURGED_CONTENT,
    VaultCredential,
    Vaults,
    archive_change,
    credential_notification,
    credential_repository,
)

_SECRETS = msgspec.json.Decoder(Secrets)

DisplayName = Annotated[str, Meta(max_length=255)]


class CreateCredential(Struct, frozen=True, kw_only=True):
    auth: NewAuth
    display_name: DisplayName | None = None
    metadata: Metadata = {}
    __repr__ = redacted_repr


class UpdateCredential(Struct, frozen=True, kw_only=True):
    auth: AuthPatch | UnsetType = UNSET
    display_name: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    metadata: MetadataPatch | UnsetType | None = UNSET
    __repr__ = redacted_repr


@dataclass(frozen=True, slots=True)
class UnsealedCredential:
    """A credential with its secrets, as it was at one moment."""

    row: RecordRow = field(repr=False)
    credential: VaultCredential
    secrets: Secrets = field(repr=False)


class Credentials:
    def __init__(
        self,
        records: Records,
        seal: Seal,
        vaults: Vaults,
        *,
        notify: Notify = ignore_notification,
        clock: Clock = clocks.now,
    ) -> None:
        self._records = records
        self._seal = seal
        self._vaults = vaults
        self._repository = credential_repository(records, clock)
        self._notify = notify
        self._clock = clock

    async def create(
        self, tenant: str, vault_id: str, request: CreateCredential
    ) -> VaultCredential:
        """Raises: NotFound, InvalidInput; AlreadyExists: the vault has one for that server or of
        that name."""
        now = self._clock()
        auth, secrets = split_secrets(request.auth, now)
        credential = copy_fields(
            VaultCredential,
            request,
            id=ids.new_id("vcrd"),
            vault_id=vault_id,
            auth=auth,
            created_at=now,
            updated_at=now,
        )
        change = self._repository.put_change(
            tenant, credential, content=self._seal_secrets(tenant, credential.id, secrets)
        )

        async def prepare() -> tuple[VaultCredential, list[RecordChange]]:
            return credential, [await self._vaults.admit_change(tenant, vault_id), change]

        await self._repository.transact(credential.id, prepare)
        await self._notify_change(tenant, credential, "created")
        return credential

    async def get(self, tenant: str, vault_id: str, credential_id: str) -> VaultCredential:
        """Raises: NotFound."""
        return await self._repository.get(tenant, credential_id, parent=vault_id)

    async def page(self, tenant: str, vault_id: str, query: ListQuery) -> Page[VaultCredential]:
        """Raises: NotFound: the vault."""
        await self._vaults.get(tenant, vault_id)
        return await self._repository.page(tenant, dataclasses.replace(query, parent=vault_id))

    async def update(
        self, tenant: str, vault_id: str, credential_id: str, request: UpdateCredential
    ) -> VaultCredential:
        """Raises: NotFound; InvalidInput: it is archived, or the change is not possible."""

        async def prepare() -> tuple[VaultCredential, list[RecordChange]]:
            unsealed = await self.unseal(tenant, vault_id, credential_id)
            current, secrets, now = unsealed.credential, unsealed.secrets, self._clock()
            auth: Auth = current.auth
            if request.auth is not UNSET:
                auth, secrets = patch_auth(auth, secrets, request.auth, now)
            changed = replace(
                current,
                auth=auth,
                display_name=request.display_name or current.display_name,
                metadata=patch_metadata(current.metadata, request.metadata),
                updated_at=now,
            )
            return changed, [self._replace_change(unsealed, changed, secrets)]

        return await self._repository.transact(credential_id, prepare)

    async def archive(self, tenant: str, vault_id: str, credential_id: str) -> VaultCredential:
        """Archive a credential permanently: its secrets are deleted, and another may use its
        key."""

        is_new = False

        async def prepare() -> tuple[VaultCredential, list[RecordChange]]:
            nonlocal is_new
            row = await self._repository.row(tenant, credential_id, parent=vault_id)
            is_new = not row.is_archived
            if not is_new:
                return self._repository.read(row), []
            change = archive_change(self._repository, row, self._clock())
            return self._repository.read(change.row), [change]

        credential = await self._repository.transact(credential_id, prepare)
        if is_new:
            await self._notify_change(tenant, credential, "archived")
        return credential

    async def delete(self, tenant: str, vault_id: str, credential_id: str) -> None:
        """Raises: NotFound."""

        async def prepare() -> tuple[VaultCredential, list[RecordChange]]:
            row = await self._repository.row(tenant, credential_id, parent=vault_id)
            return self._repository.read(row), [Remove(row=row)]

        credential = await self._repository.transact(credential_id, prepare)
        await self._notify_change(tenant, credential, "deleted")

    async def unseal(self, tenant: str, vault_id: str, credential_id: str) -> UnsealedCredential:
        """A credential with its secrets.

        Raises: NotFound; InvalidInput: it is archived and has none; StoreCorrupt: another key.
        """
        row = await self._repository.row(tenant, credential_id, parent=vault_id)
        sealed = await self._records.content(CREDENTIAL_KIND, credential_id)
        if row.is_archived or sealed == PURGED_CONTENT:
            raise InvalidInput(f"the credential {credential_id} is archived; create another")
        plain = self._seal.unseal(sealed, _context(tenant, credential_id))
        return UnsealedCredential(row, self._repository.read(row), _SECRETS.decode(plain))

    async def keep(
        self, unsealed: UnsealedCredential, changed: VaultCredential, secrets: Secrets
    ) -> None:
        """Replace a credential together with its secrets.

        Raises: StaleVersion: it has changed since it was unsealed.
        """
        await self._records.write(self._replace_change(unsealed, changed, secrets))

    async def claim(
        self, unsealed: UnsealedCredential, until: datetime | None
    ) -> UnsealedCredential:
        """Claim the refresh of its secrets until that time, so that other processes wait; `None`
        ends the claim, and so does `keep`.

        Raises: StaleVersion: it has changed since it was unsealed.
        """
        claimed = dataclasses.replace(unsealed.row, due=optional_micros(until))
        [row] = await self._records.write(Replace(row=claimed))
        return dataclasses.replace(unsealed, row=row)

    def _replace_change(
        self, unsealed: UnsealedCredential, changed: VaultCredential, secrets: Secrets
    ) -> Replace:
        sealed = self._seal_secrets(unsealed.row.tenant, changed.id, secrets)
        return self._repository.replace_change(unsealed.row, changed, content=sealed)

    def _seal_secrets(self, tenant: str, credential_id: str, secrets: Secrets) -> bytes:
        return self._seal.seal(msgspec.json.encode(secrets), _context(tenant, credential_id))

    async def _notify_change(self, tenant: str, credential: VaultCredential, action: str) -> None:
        await self._notify(
            credential_notification(tenant, credential.vault_id, credential.id, action)
        )


def _context(tenant: str, credential_id: str) -> str:
    return msgspec.json.encode(("vault credential", tenant, credential_id)).decode()
