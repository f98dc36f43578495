"""Vaults: the credentials of one end user, kept together. What is in them is `credentials`'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, StaleVersion
from mainspring.log.records import RecordQuery, RecordRow, Records, Remove, Replace
from mainspring.service.storage.metadata import Metadata, MetadataPatch, patch_metadata
from mainspring.service.storage.notifications import Notification, Notify, ignore_notification
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import (
    IndexColumns,
    ListQuery,
    Repository,
    delete_children,
)
from mainspring.service.vaults.credential_record import KIND as CREDENTIAL
from mainspring.service.vaults.credential_record import archive_change, credential_repository

MAX_CREDENTIALS = 20
"""Of a vault, without those that are archived."""
_TRIES = 32

DisplayName = Annotated[str, Meta(min_length=1, max_length=255)]


class VaultObject(Struct, frozen=True, kw_only=True):
    id: str
    display_name: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata = {}
    archived_at: datetime | None = None
    type: Literal["vault"] = "vault"


class CreateVault(Struct, frozen=True, kw_only=True):
    display_name: DisplayName
    metadata: Metadata = {}


class UpdateVault(Struct, frozen=True, kw_only=True):
    display_name: DisplayName | None = None
    metadata: MetadataPatch | UnsetType | None = UNSET


class Vaults:
    def __init__(
        self,
        records: Records,
        *,
        notify: Notify = ignore_notification,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._records = records
        self._repository = Repository(
            records, "vault", VaultObject, columns=_index_columns, clock=clock
        )
        self._credentials = credential_repository(records, clock)
        self._notify = notify
        self._clock = clock
        self._new_id = new_id

    async def create(self, tenant: str, request: CreateVault) -> VaultObject:
        now = self._clock()
        made = VaultObject(
            id=self._new_id("vlt"),
            display_name=request.display_name,
            metadata=request.metadata,
            created_at=now,
            updated_at=now,
        )
        await self._repository.put(tenant, made)
        await self._notify(Notification(tenant=tenant, type="vault.created", id=made.id))
        return made

    async def get(self, tenant: str, vault_id: str) -> VaultObject:
        return await self._repository.get(tenant, vault_id)

    async def page(self, tenant: str, list_query: ListQuery) -> Page[VaultObject]:
        return await self._repository.page(tenant, list_query)

    async def update(self, tenant: str, vault_id: str, request: UpdateVault) -> VaultObject:
        """Raises: InvalidInput: it is archived."""

        def change(current: VaultObject) -> VaultObject:
            _require_active(current)
            return replace(
                current,
                display_name=request.display_name or current.display_name,
                metadata=patch_metadata(current.metadata, request.metadata),
                updated_at=self._clock(),
            )

        return await self._repository.update(tenant, vault_id, change)

    async def archive(self, tenant: str, vault_id: str) -> VaultObject:
        """For good: no new sessions with it, and its secrets are gone; what they were is kept."""
        for _ in range(_TRIES):
            record = await self._repository.record(tenant, vault_id)
            current = self._repository.read(record)
            if current.archived_at is not None:
                return current
            now = self._clock()
            archived = replace(current, archived_at=now, updated_at=now)
            holding = await self._credential_records(tenant, vault_id)
            changes = [archive_change(self._credentials, item, now) for item in holding]
            try:
                await self._records.write(
                    self._repository.replace_change(record, archived), *changes
                )
            except StaleVersion:
                continue
            await self._notify_change(tenant, vault_id, "archived", [item.id for item in holding])
            return archived
        raise StaleVersion(f"vault {vault_id}: others kept changing it; try again")

    async def delete(self, tenant: str, vault_id: str) -> None:
        """With all that is in it, and no trace of it here."""
        gone: list[str] = []
        for _ in range(_TRIES):
            record = await self._repository.record(tenant, vault_id)
            gone += await delete_children(self._records, CREDENTIAL, tenant=tenant, parent=vault_id)
            try:
                await self._records.write(Remove(record_row=record))
            except StaleVersion:  # it got a credential meanwhile
                continue
            await self._notify_change(tenant, vault_id, "deleted", gone)
            return
        raise StaleVersion(f"vault {vault_id}: others kept changing it; try again")

    async def active(self, tenant: str, vault_id: str) -> VaultObject:
        """For a new session with it.

        Raises: NotFound; InvalidInput: it is archived.
        """
        vault = await self._repository.get(tenant, vault_id)
        _require_active(vault)
        return vault

    async def admit_change(self, tenant: str, vault_id: str) -> Replace:
        """A change to write together with a new credential: it is refused (`Stale`) if the vault
        was archived or deleted meanwhile, or got another credential.

        Raises: NotFound; InvalidInput: it is archived, or full.
        """
        record = await self._repository.record(tenant, vault_id)
        _require_active(self._repository.read(record))
        wanted = RecordQuery(kind=CREDENTIAL, tenant=tenant, parent=vault_id, is_archived=False)
        if await self._records.count(wanted) >= MAX_CREDENTIALS:
            raise InvalidInput(
                f"a vault has {MAX_CREDENTIALS} credentials at most; archive one of {vault_id}'s"
            )
        return Replace(record_row=record)

    async def _credential_records(self, tenant: str, vault_id: str) -> list[RecordRow]:
        return await self._records.list(
            RecordQuery(
                kind=CREDENTIAL,
                tenant=tenant,
                parent=vault_id,
                is_archived=False,
                limit=MAX_CREDENTIALS,
            )
        )

    async def _notify_change(
        self, tenant: str, vault_id: str, what: str, credentials: Sequence[str]
    ) -> None:
        await self._notify(Notification(tenant=tenant, type=f"vault.{what}", id=vault_id))
        for id_ in credentials:
            await self._notify(
                Notification(
                    tenant=tenant, type=f"vault_credential.{what}", id=id_, vault_id=vault_id
                )
            )


def _require_active(vault_object: VaultObject) -> None:
    if vault_object.archived_at is not None:
        raise InvalidInput(f"the vault {vault_object.id} is archived; make another")


def _index_columns(vault_object: VaultObject) -> IndexColumns:
    return IndexColumns(
        is_archived=vault_object.archived_at is not None, created=vault_object.created_at
    )
