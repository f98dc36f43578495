"""A credential as it is stored and told: everything about it but its secrets, which are sealed
beside it as the content of its record."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.clock import Clock
from mainspring.log.records import Record, Records, Replace
from mainspring.service.keeping.drawer import Drawer, Tabs
from mainspring.service.keeping.metadata import Metadata
from mainspring.service.vaults.credential_auth import Auth, key_of

KIND = "vault_credential"
PURGED = b""
"""The content of one that is archived."""


class Credential(Struct, frozen=True, kw_only=True):
    id: str
    vault_id: str
    auth: Auth
    created_at: datetime
    updated_at: datetime
    display_name: str | None = None
    metadata: Metadata = {}
    archived_at: datetime | None = None
    type: Literal["vault_credential"] = KIND


def credential_drawer(records: Records, clock: Clock) -> Drawer[Credential]:
    return Drawer(records, KIND, Credential, tabs=_tabs, clock=clock)


def archiving(drawer: Drawer[Credential], record: Record, now: datetime) -> Replace:
    """The record stays, the secrets go, and another may have its key."""
    archived = replace(drawer.read(record), archived_at=now, updated_at=now)
    return drawer.replacing(record, archived, content=PURGED)


def _tabs(credential: Credential) -> Tabs:
    is_archived = credential.archived_at is not None
    return Tabs(
        parent=credential.vault_id,
        name=None if is_archived else key_of(credential.auth),
        is_archived=is_archived,
        created=credential.created_at,
    )
