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
from mainspring.core.errors import InvalidInput, NotFound, Stale
from mainspring.log.records import Record, Records, Remove, Replace
from mainspring.service.keeping.drawer import Listing
from mainspring.service.keeping.metadata import Metadata, MetadataPatch, patched
from mainspring.service.keeping.notice import Notice, Notify, unnoticed
from mainspring.service.keeping.page import Page
from mainspring.service.keeping.seal import Seal
from mainspring.service.vaults.credential import (
    KIND,
    PURGED,
    Credential,
    archiving,
    credential_drawer,
)
from mainspring.service.vaults.credential_auth import (
    Auth,
    AuthPatch,
    NewAuth,
    Secrets,
    hidden,
    parted,
    patched_auth,
)
from mainspring.service.vaults.vaults import Vaults

_TRIES = 32
_SECRETS = msgspec.json.Decoder(Secrets)

DisplayName = Annotated[str, Meta(max_length=255)]


class CreateCredential(Struct, frozen=True, kw_only=True):
    auth: NewAuth
    display_name: DisplayName | None = None
    metadata: Metadata = {}
    __repr__ = hidden


class UpdateCredential(Struct, frozen=True, kw_only=True):
    auth: AuthPatch | UnsetType = UNSET
    display_name: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    metadata: MetadataPatch | UnsetType | None = UNSET
    __repr__ = hidden


@dataclass(frozen=True, slots=True)
class Opened:
    """A credential with its secrets, as it was at one moment."""

    record: Record = field(repr=False)
    credential: Credential
    secrets: Secrets = field(repr=False)


class Credentials:
    """Wants the vaults that they are in, which count them and take them along."""

    def __init__(
        self,
        records: Records,
        seal: Seal,
        vaults: Vaults,
        *,
        notify: Notify = unnoticed,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._records = records
        self._seal = seal
        self._vaults = vaults
        self._drawer = credential_drawer(records, clock)
        self._notify = notify
        self._clock = clock
        self._new_id = new_id

    async def create(self, tenant: str, vault_id: str, asked: CreateCredential) -> Credential:
        """Raises: NotFound, InvalidInput; AlreadyThere: the vault has one for that server or of
        that name."""
        now = self._clock()
        auth, secrets = parted(asked.auth, now)
        made = Credential(
            id=self._new_id("vcrd"),
            vault_id=vault_id,
            auth=auth,
            display_name=asked.display_name,
            metadata=asked.metadata,
            created_at=now,
            updated_at=now,
        )
        put = self._drawer.putting(tenant, made, content=self._sealed(tenant, made.id, secrets))
        for _ in range(_TRIES):
            try:
                await self._records.write(await self._vaults.admitting(tenant, vault_id), put)
            except Stale:  # the vault got another meanwhile
                continue
            await self._tell(tenant, made, "created")
            return made
        raise Stale(f"vault {vault_id}: others kept changing it; try again")

    async def get(self, tenant: str, vault_id: str, credential_id: str) -> Credential:
        """Raises: NotFound."""
        return self._drawer.read(await self._record(tenant, vault_id, credential_id))

    async def page(self, tenant: str, vault_id: str, listing: Listing) -> Page[Credential]:
        """Raises: NotFound: the vault."""
        await self._vaults.get(tenant, vault_id)
        return await self._drawer.page(tenant, dataclasses.replace(listing, parent=vault_id))

    async def update(
        self, tenant: str, vault_id: str, credential_id: str, asked: UpdateCredential
    ) -> Credential:
        """Raises: NotFound; InvalidInput: it is archived, or cannot be changed so."""

        def change(known: Credential, secrets: Secrets) -> tuple[Credential, Secrets]:
            now = self._clock()
            auth: Auth = known.auth
            if asked.auth is not UNSET:
                auth, secrets = patched_auth(auth, secrets, asked.auth, now)
            changed = replace(
                known,
                auth=auth,
                display_name=asked.display_name or known.display_name,
                metadata=patched(known.metadata, asked.metadata),
                updated_at=now,
            )
            return changed, secrets

        for _ in range(_TRIES):
            opened = await self.opened(tenant, vault_id, credential_id)
            try:
                return await self.keep(opened, *change(opened.credential, opened.secrets))
            except Stale:
                continue
        raise Stale(f"credential {credential_id}: others kept changing it; try again")

    async def archive(self, tenant: str, vault_id: str, credential_id: str) -> Credential:
        """For good: its secrets are gone, and another may have its key."""
        for _ in range(_TRIES):
            record = await self._record(tenant, vault_id, credential_id)
            known = self._drawer.read(record)
            if known.archived_at is not None:
                return known
            try:
                [kept] = await self._records.write(archiving(self._drawer, record, self._clock()))
            except Stale:
                continue
            await self._tell(tenant, known, "archived")
            return self._drawer.read(kept)
        raise Stale(f"credential {credential_id}: others kept changing it; try again")

    async def delete(self, tenant: str, vault_id: str, credential_id: str) -> None:
        """Raises: NotFound."""
        for _ in range(_TRIES):
            record = await self._record(tenant, vault_id, credential_id)
            try:
                await self._records.write(Remove(record=record))
            except Stale:
                continue
            await self._tell(tenant, self._drawer.read(record), "deleted")
            return
        raise Stale(f"credential {credential_id}: others kept changing it; try again")

    async def opened(self, tenant: str, vault_id: str, credential_id: str) -> Opened:
        """With its secrets, for those who send them where they belong.

        Raises: NotFound; InvalidInput: it is archived and has none; StoreCorrupt: another key.
        """
        record = await self._record(tenant, vault_id, credential_id)
        sealed = await self._records.content(KIND, credential_id)
        if record.is_archived or sealed == PURGED:
            raise InvalidInput(f"the credential {credential_id} is archived; make another")
        plain = self._seal.unseal(sealed, _context(tenant, credential_id))
        return Opened(record, self._drawer.read(record), _SECRETS.decode(plain))

    async def keep(self, opened: Opened, changed: Credential, secrets: Secrets) -> Credential:
        """Replace it, with its secrets, as one.

        Raises: Stale: it is not any more what was opened.
        """
        sealed = self._sealed(opened.record.tenant, changed.id, secrets)
        await self._records.write(self._drawer.replacing(opened.record, changed, content=sealed))
        return changed

    async def claim(self, opened: Opened, until: datetime | None) -> Opened:
        """Say that one is at work on its secrets, for others to wait; `None`: not any more.
        `keep` ends a claim too.

        Raises: Stale: it is not any more what was opened.
        """
        due = None if until is None else to_micros(until)
        claimed = dataclasses.replace(opened.record, due=due)
        [record] = await self._records.write(Replace(record=claimed))
        return dataclasses.replace(opened, record=record)

    def _sealed(self, tenant: str, credential_id: str, secrets: Secrets) -> bytes:
        return self._seal.seal(msgspec.json.encode(secrets), _context(tenant, credential_id))

    async def _record(self, tenant: str, vault_id: str, credential_id: str) -> Record:
        record = await self._drawer.record(tenant, credential_id)
        if record.parent != vault_id:
            raise NotFound(KIND, credential_id)
        return record

    async def _tell(self, tenant: str, credential: Credential, what: str) -> None:
        await self._notify(
            Notice(
                tenant=tenant,
                type=f"vault_credential.{what}",
                id=credential.id,
                vault_id=credential.vault_id,
            )
        )


def _context(tenant: str, credential_id: str) -> str:
    return msgspec.json.encode(("vault credential", tenant, credential_id)).decode()
