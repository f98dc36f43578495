"""A credential as it is stored and told: everything about it but its secrets, which are sealed
beside it as the content of its record."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.clock import Clock
from mainspring.log.records import RecordRow, Records, Replace
from mainspring.service.storage.metadata import Metadata
from mainspring.service.storage.repository import IndexColumns, Repository
from mainspring.service.vaults.credential_auth import Auth, credential_key

KIND = "vault_credential"
PURGED_CONTENT = b""
"""The content of one that is archived."""


class VaultCredential(Struct, frozen=True, kw_only=True):
    id: str
    vault_id: str
    auth: Auth
    created_at: datetime
    updated_at: datetime
    display_name: str | None = None
    metadata: Metadata = {}
    archived_at: datetime | None = None
    type: Literal["vault_credential"] = KIND


def credential_repository(records: Records, clock: Clock) -> Repository[VaultCredential]:
    return Repository(records, KIND, VaultCredential, columns=_index_columns, clock=clock)


def archive_change(
    repository: Repository[VaultCredential], row: RecordRow, now: datetime
) -> Replace:
    """The record stays, the secrets go, and another may have its key."""
    archived = replace(repository.read(row), archived_at=now, updated_at=now)
    return repository.replace_change(row, archived, content=PURGED_CONTENT)


def _index_columns(credential: VaultCredential) -> IndexColumns:
    is_archived = credential.archived_at is not None
    return IndexColumns(
        parent=credential.vault_id,
        name=None if is_archived else credential_key(credential.auth),
        is_archived=is_archived,
        created=credential.created_at,
    )
