"""Vaults: the credentials of one end user. A credential is stored and shown without its secrets,
which are sealed as the content of its record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.log.records import RecordChange, RecordQuery, RecordRow, Records, Remove, Replace
from mainspring.service.storage.metadata import Metadata, MetadataPatch, copy_fields, patch_metadata
from mainspring.service.storage.repository import (
    IndexColumns,
    Notification,
    Notify,
    Repository,
    delete_children,
    ignore_notification,
)
from mainspring.service.vaults.credential_auth import Auth, credential_key

CREDENTIAL_KIND = "vault_credential"
MAX_CREDENTIALS = 20
"""The limit per vault, without archived ones."""
PURGED_CONTENT = b""
"""The content of an archived credential."""

DisplayName = Annotated[str, Meta(min_length=1, max_length=255)]


class VaultObject(Struct, frozen=True, kw_only=True):
    id: str
    display_name: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata = {}
    archived_at: datetime | None = None
    type: Literal["vault"] = "vault"


class VaultCredential(Struct, frozen=True, kw_only=True):
    id: str
    vault_id: str
    auth: Auth
    created_at: datetime
    updated_at: datetime
    display_name: str | None = None
    metadata: Metadata = {}
    archived_at: datetime | None = None
    type: Literal["vault_credential"] = CREDENTIAL_KIND


def credential_repository(records: Records, clock: Clock) -> Repository[VaultCredential]:
    return Repository(
        records, CREDENTIAL_KIND, VaultCredential, columns=_credential_columns, clock=clock
    )


def _credential_columns(credential: VaultCredential) -> IndexColumns:
    is_archived = credential.archived_at is not None
    return IndexColumns(
        parent=credential.vault_id,
        name=None if is_archived else credential_key(credential.auth),
        is_archived=is_archived,
        created=credential.created_at,
    )


def archive_change(
    repository: Repository[VaultCredential], row: RecordRow, now: datetime
) -> Replace:
    """Archive a credential: the record stays without its secrets; another credential may use its
    key."""
    archived = replace(repository.read(row), archived_at=now, updated_at=now)
    return repository.replace_change(row, archived, content=PURGED_CONTENT)


class CreateVault(Struct, frozen=True, kw_only=True):
    display_name: DisplayName
    metadata: Metadata = {}


class UpdateVault(Struct, frozen=True, kw_only=True):
    display_name: DisplayName | None = None
    metadata: MetadataPatch | UnsetType | None = UNSET


class Vaults:
    def __init__(
        self, records: Records, *, notify: Notify = ignore_notification, clock: Clock = clocks.now
    ) -> None:
        self._records = records
        self._repository = Repository(
            records, "vault", VaultObject, columns=_index_columns, clock=clock
        )
        self.get = self._repository.get
        self.page = self._repository.page
        self._credentials = credential_repository(records, clock)
        self._notify = notify
        self._clock = clock

    async def create(self, tenant: str, request: CreateVault) -> VaultObject:
        now = self._clock()
        vault = copy_fields(
            VaultObject, request, id=ids.new_id("vlt"), created_at=now, updated_at=now
        )
        await self._repository.put(tenant, vault)
        await self._notify_change(tenant, vault.id, "created")
        return vault

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
        """Archive a vault permanently: no new sessions can use it, and its secrets are deleted."""
        credentials: list[str] | None = None

        async def prepare() -> tuple[VaultObject, list[RecordChange]]:
            nonlocal credentials
            row = await self._repository.row(tenant, vault_id)
            current = self._repository.read(row)
            if current.archived_at is not None:
                return current, []
            now = self._clock()
            archived = replace(current, archived_at=now, updated_at=now)
            rows = await self._records.list(_active_credentials(tenant, vault_id))
            credentials = [item.id for item in rows]
            purges = [archive_change(self._credentials, item, now) for item in rows]
            return archived, [self._repository.replace_change(row, archived), *purges]

        archived = await self._repository.transact(vault_id, prepare)
        if credentials is not None:
            await self._notify_change(tenant, vault_id, "archived", credentials)
        return archived

    async def delete(self, tenant: str, vault_id: str) -> None:
        """Delete a vault with all its credentials."""
        credentials: list[str] = []

        async def prepare() -> tuple[None, list[RecordChange]]:
            row = await self._repository.row(tenant, vault_id)
            credentials.extend(
                await delete_children(
                    self._records, CREDENTIAL_KIND, tenant=tenant, parent=vault_id
                )
            )
            return None, [Remove(row=row)]  # fails if it got a credential meanwhile

        await self._repository.transact(vault_id, prepare)
        await self._notify_change(tenant, vault_id, "deleted", credentials)

    async def active(self, tenant: str, vault_id: str) -> VaultObject:
        """The vault, for a new session that uses it.

        Raises: NotFound; InvalidInput: it is archived.
        """
        vault = await self._repository.get(tenant, vault_id)
        _require_active(vault)
        return vault

    async def admit_change(self, tenant: str, vault_id: str) -> Replace:
        """A change to write together with a new credential: it fails (`StaleVersion`) if the vault
        was archived or deleted meanwhile, or got another credential.

        Raises: NotFound; InvalidInput: it is archived, or full.
        """
        row = await self._repository.row(tenant, vault_id)
        _require_active(self._repository.read(row))
        if await self._records.count(_active_credentials(tenant, vault_id)) >= MAX_CREDENTIALS:
            raise InvalidInput(
                f"a vault may have at most {MAX_CREDENTIALS} credentials; archive one in {vault_id}"
            )
        return Replace(row=row)

    async def _notify_change(
        self, tenant: str, vault_id: str, action: str, credentials: Sequence[str] = ()
    ) -> None:
        await self._notify(Notification(tenant=tenant, type=f"vault.{action}", id=vault_id))
        for id_ in credentials:
            await self._notify(credential_notification(tenant, vault_id, id_, action))


def credential_notification(
    tenant: str, vault_id: str, credential_id: str, action: str
) -> Notification:
    return Notification(
        tenant=tenant, type=f"vault_credential.{action}", id=credential_id, vault_id=vault_id
    )


def _active_credentials(tenant: str, vault_id: str) -> RecordQuery:
    return RecordQuery(
        kind=CREDENTIAL_KIND,
        tenant=tenant,
        parent=vault_id,
        is_archived=False,
        limit=MAX_CREDENTIALS,
    )


def _require_active(vault: VaultObject) -> None:
    if vault.archived_at is not None:
        raise InvalidInput(f"the vault {vault.id} is archived; create another")


def _index_columns(vault: VaultObject) -> IndexColumns:
    return IndexColumns(is_archived=vault.archived_at is not None, created=vault.created_at)
