"""Credentials: how a session's agent authenticates elsewhere. Secrets come in and are sealed; only
`opened` gives them out again, and no route leads there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import InvalidInput, NotFound, StaleVersion
from mainspring.log.records import RecordRow, Records, Remove, Replace
from mainspring.service.storage.metadata import Metadata, MetadataPatch, patch_metadata
from mainspring.service.storage.notifications import Notification, Notify, ignore_notification
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery, Seal
from mainspring.service.vaults.credential_auth import (
    Auth,
    AuthPatch,
    NewAuth,
    Secrets,
    patch_auth,
    redacted_repr,
    split_secrets,
)
from mainspring.service.vaults.credential_record import (
    KIND,
    PURGED_CONTENT,
    VaultCredential,
    archive_change,
    credential_repository,
)
from mainspring.service.vaults.vaults import Vaults

_TRIES = 32
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

    record_row: RecordRow = field(repr=False)
    vault_credential: VaultCredential
    secrets: Secrets = field(repr=False)


class Credentials:
    """Wants the vaults that they are in, which count them and take them along."""

    def __init__(
        self,
        records: Records,
        seal: Seal,
        vaults: Vaults,
        *,
        notify: Notify = ignore_notification,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._records = records
        self._seal = seal
        self._vaults = vaults
        self._repository = credential_repository(records, clock)
        self._notify = notify
        self._clock = clock
        self._new_id = new_id

    async def create(
        self, tenant: str, vault_id: str, request: CreateCredential
    ) -> VaultCredential:
        """Raises: NotFound, InvalidInput; AlreadyThere: the vault has one for that server or of
        that name."""
        now = self._clock()
        auth, secrets = split_secrets(request.auth, now)
        made = VaultCredential(
            id=self._new_id("vcrd"),
            vault_id=vault_id,
            auth=auth,
            display_name=request.display_name,
            metadata=request.metadata,
            created_at=now,
            updated_at=now,
        )
        put = self._repository.put_change(
            tenant, made, content=self._seal_secrets(tenant, made.id, secrets)
        )
        for _ in range(_TRIES):
            try:
                await self._records.write(await self._vaults.admit_change(tenant, vault_id), put)
            except StaleVersion:  # the vault got another meanwhile
                continue
            await self._notify_change(tenant, made, "created")
            return made
        raise StaleVersion(f"vault {vault_id}: others kept changing it; try again")

    async def get(self, tenant: str, vault_id: str, credential_id: str) -> VaultCredential:
        """Raises: NotFound."""
        return self._repository.read(await self._record(tenant, vault_id, credential_id))

    async def page(
        self, tenant: str, vault_id: str, list_query: ListQuery
    ) -> Page[VaultCredential]:
        """Raises: NotFound: the vault."""
        await self._vaults.get(tenant, vault_id)
        return await self._repository.page(tenant, dataclasses.replace(list_query, parent=vault_id))

    async def update(
        self, tenant: str, vault_id: str, credential_id: str, request: UpdateCredential
    ) -> VaultCredential:
        """Raises: NotFound; InvalidInput: it is archived, or cannot be changed so."""

        def change(current: VaultCredential, secrets: Secrets) -> tuple[VaultCredential, Secrets]:
            now = self._clock()
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
            return changed, secrets

        for _ in range(_TRIES):
            opened = await self.unseal(tenant, vault_id, credential_id)
            try:
                return await self.keep(opened, *change(opened.vault_credential, opened.secrets))
            except StaleVersion:
                continue
        raise StaleVersion(f"credential {credential_id}: others kept changing it; try again")

    async def archive(self, tenant: str, vault_id: str, credential_id: str) -> VaultCredential:
        """For good: its secrets are gone, and another may have its key."""
        for _ in range(_TRIES):
            record = await self._record(tenant, vault_id, credential_id)
            current = self._repository.read(record)
            if current.archived_at is not None:
                return current
            try:
                [kept] = await self._records.write(
                    archive_change(self._repository, record, self._clock())
                )
            except StaleVersion:
                continue
            await self._notify_change(tenant, current, "archived")
            return self._repository.read(kept)
        raise StaleVersion(f"credential {credential_id}: others kept changing it; try again")

    async def delete(self, tenant: str, vault_id: str, credential_id: str) -> None:
        """Raises: NotFound."""
        for _ in range(_TRIES):
            record = await self._record(tenant, vault_id, credential_id)
            try:
                await self._records.write(Remove(record_row=record))
            except StaleVersion:
                continue
            await self._notify_change(tenant, self._repository.read(record), "deleted")
            return
        raise StaleVersion(f"credential {credential_id}: others kept changing it; try again")

    async def unseal(self, tenant: str, vault_id: str, credential_id: str) -> UnsealedCredential:
        """With its secrets, for those who send them where they belong.

        Raises: NotFound; InvalidInput: it is archived and has none; StoreCorrupt: another key.
        """
        record = await self._record(tenant, vault_id, credential_id)
        sealed = await self._records.content(KIND, credential_id)
        if record.is_archived or sealed == PURGED_CONTENT:
            raise InvalidInput(f"the credential {credential_id} is archived; make another")
        plain = self._seal.unseal(sealed, _context(tenant, credential_id))
        return UnsealedCredential(record, self._repository.read(record), _SECRETS.decode(plain))

    async def keep(
        self, credential: UnsealedCredential, changed: VaultCredential, secrets: Secrets
    ) -> VaultCredential:
        """Replace it, with its secrets, as one.

        Raises: Stale: it is not any more what was opened.
        """
        sealed = self._seal_secrets(credential.record_row.tenant, changed.id, secrets)
        await self._records.write(
            self._repository.replace_change(credential.record_row, changed, content=sealed)
        )
        return changed

    async def claim(
        self, credential: UnsealedCredential, until: datetime | None
    ) -> UnsealedCredential:
        """Say that one is at work on its secrets, for others to wait; `None`: not any more.
        `keep` ends a claim too.

        Raises: Stale: it is not any more what was opened.
        """
        due = None if until is None else to_micros(until)
        claimed = dataclasses.replace(credential.record_row, due=due)
        [record] = await self._records.write(Replace(record_row=claimed))
        return dataclasses.replace(credential, record_row=record)

    def _seal_secrets(self, tenant: str, credential_id: str, secrets: Secrets) -> bytes:
        return self._seal.seal(msgspec.json.encode(secrets), _context(tenant, credential_id))

    async def _record(self, tenant: str, vault_id: str, credential_id: str) -> RecordRow:
        record = await self._repository.record(tenant, credential_id)
        if record.parent != vault_id:
            raise NotFound(KIND, credential_id)
        return record

    async def _notify_change(self, tenant: str, credential: VaultCredential, what: str) -> None:
        await self._notify(
            Notification(
                tenant=tenant,
                type=f"vault_credential.{what}",
                id=credential.id,
                vault_id=credential.vault_id,
            )
        )


def _context(tenant: str, credential_id: str) -> str:
    return msgspec.json.encode(("vault credential", tenant, credential_id)).decode()
