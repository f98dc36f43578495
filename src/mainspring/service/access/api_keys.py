"""API keys: created, listed, revoked and looked up. A secret is shown once and never stored.

Its SHA-256 is stored. A slow hash would protect secrets that people choose; ours are 256 random
bits, which nobody can guess at any speed, and a slow hash would burden every request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, Forbidden, InvalidInput, NotFound, Unauthenticated
from mainspring.core.ids import AgentId, EnvironmentId, GrantedId
from mainspring.log.records import Put, RecordQuery, Records
from mainspring.service.access.principal import Principal, Role
from mainspring.service.access.tenants import (
    ROOT_TENANT,
    CreateTenant,
    PerMinute,
    Tenants,
    Usd,
    check_usd,
)
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository

PREFIX = "msk_"
KIND = "api_key"
MIN_CHOSEN_SECRET = 32  # characters of a key that a person chose
_MIN_DISTINCT_CHARS = 12  # of it, so that it is not "aaaa..."
MAX_SECRET = 512  # characters
LAST_USED_INTERVAL = timedelta(hours=1)  # between two writes of the time of use
ADMIN_KEY_VARIABLE = "MAINSPRING_ADMIN_KEY"

Name = Annotated[str, Meta(min_length=1, max_length=256)]
_ID_LENGTH = Meta(min_length=1, max_length=256)


class Key(Struct, frozen=True, kw_only=True):
    id: str
    tenant_id: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    """The id of the key that created it, `cli`, or another creator."""
    agent_id: str | None = None
    """The only agent that it may use."""
    grants: tuple[str, ...] = ()
    """For a key of one agent: ids of the vaults, memory stores, files, skills and self-hosted
    environments that it may give to sessions."""
    environment_id: str | None = None
    """The only environment whose work it may take: the key of a self-hosted worker."""
    lent_to: str | None = None
    """The agent that uses it: requests with it count as requests of an agent."""
    requests_per_minute: int | None = None
    daily_budget_usd: Usd | None = None
    """The maximum cost of the sessions that it creates, per day (UTC)."""
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    """Accurate to the hour."""
    revoked_at: datetime | None = None
    type: Literal["api_key"] = "api_key"

    @property
    def is_narrow(self) -> bool:
        """Whether its scope is narrower than its role."""
        narrowed = (self.agent_id, self.environment_id, self.lent_to)
        limited = (self.requests_per_minute, self.daily_budget_usd)
        return any(item is not None for item in (*narrowed, *limited))


class NewKey(Key, frozen=True, kw_only=True):
    """Returned once, to the creator of the key."""

    key: str


class CreateKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    role: Role = "user"
    agent_id: Annotated[AgentId, _ID_LENGTH] | None = None
    grants: Annotated[tuple[Annotated[GrantedId, _ID_LENGTH], ...], Meta(max_length=256)] = ()
    environment_id: Annotated[EnvironmentId, _ID_LENGTH] | None = None
    lent_to: Annotated[AgentId, _ID_LENGTH] | None = None
    requests_per_minute: PerMinute | None = None
    daily_budget_usd: Usd | None = None
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None


class _StoredKey(Struct, frozen=True, kw_only=True):
    """A key as it is stored."""

    key: Key
    digest: str
    """SHA-256 of the whole secret; the id contains the first half, so that keys are found by it."""

    @property
    def id(self) -> str:
        return self.key.id


class Keys:
    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._repository = Repository(
            records, KIND, _StoredKey, columns=_index_columns, clock=clock
        )
        self._clock = clock

    async def create(self, principal: Principal, request: CreateKey) -> NewKey:
        """Create a key of the same tenant, with at most the permissions of its creator.

        Raises: Forbidden, InvalidInput.
        """
        principal.require_human()
        principal.require("admin")
        await self._check_creator(principal, request)
        self._check(request)
        secret = new_secret()
        key = self._new_key(principal.tenant, request, secret, created_by=principal.key_id)
        await self._repository.put(principal.tenant, key)
        return NewKey(**asdict(key.key), key=secret)

    async def get(self, tenant: str, key_id: str) -> Key:
        """Raises: NotFound."""
        return (await self._repository.get(tenant, key_id)).key

    async def page(self, tenant: str, query: ListQuery) -> Page[Key]:
        return (await self._repository.page(tenant, query)).map(lambda stored: stored.key)

    async def revoke(self, tenant: str, key_id: str) -> Key:
        """Revoke a key permanently; takes effect within seconds on every machine. A key may revoke
        itself.

        Raises: NotFound.
        """

        def change(stored: _StoredKey) -> _StoredKey:
            moment = stored.key.revoked_at or self._clock()
            return replace(stored, key=replace(stored.key, revoked_at=moment))

        return (await self._repository.update(tenant, key_id, change)).key

    async def find_any_tenant(self, id_or_secret: str) -> Key:
        """A key of any tenant, for the operator of the machine: by its id, or by the key itself.

        Raises: NotFound.
        """
        is_id = id_or_secret.startswith(f"{_ID_PREFIX}_")
        key_id = id_or_secret if is_id else _id_of(digest_of(id_or_secret))
        return self._repository.read(await self._repository.records.get(KIND, key_id)).key

    async def find(self, digest: str) -> Key:
        """The key whose secret has this SHA-256, valid or not.

        Raises: Unauthenticated.
        """
        try:
            row = await self._repository.records.get(KIND, _id_of(digest))
        except NotFound:
            raise Unauthenticated("no such API key") from None
        key = self._repository.read(row)
        if not hmac.compare_digest(key.digest, digest) or key.key.tenant_id != row.tenant:
            raise Unauthenticated("no such API key")
        return key.key

    async def note_use(self, key: Key) -> None:
        """Record the last use, accurate to the hour: a write for every request would be too
        expensive."""
        now = self._clock()
        if key.last_used_at is None or now - key.last_used_at >= LAST_USED_INTERVAL:
            await self._repository.update(
                key.tenant_id,
                key.id,
                lambda stored: replace(stored, key=replace(stored.key, last_used_at=now)),
            )

    def first_key_change(self, secret: str) -> Put:
        """The change that creates an administrator's key of the root tenant with this secret."""
        request = CreateKey(name="first administrator", role="admin")
        key = self._new_key(ROOT_TENANT, request, secret, created_by="serve")
        return self._repository.put_change(ROOT_TENANT, key)

    async def set_admin_secret(self, secret: str) -> None:
        """Use a chosen secret as the administrator's key; the previous one is revoked.

        Raises: InvalidInput: it is easily guessed, or was revoked.
        """
        _check_chosen_secret(secret)
        request = CreateKey(name=ADMIN_KEY_VARIABLE, role="admin")
        key = self._new_key(ROOT_TENANT, request, secret, created_by=ADMIN_KEY_VARIABLE)
        try:
            await self._repository.put(ROOT_TENANT, key)
        except AlreadyExists:
            if (await self.get(ROOT_TENANT, key.id)).revoked_at is not None:
                raise InvalidInput(
                    f"{ADMIN_KEY_VARIABLE}: this key was revoked; choose another"
                ) from None
        listing = ListQuery(label=ADMIN_KEY_VARIABLE, limit=1000)
        for former in (await self._repository.page(ROOT_TENANT, listing)).data:
            if former.id != key.id:
                await self.revoke(ROOT_TENANT, former.id)

    async def has_any(self) -> bool:
        """Whether any key was ever created."""
        return await self._repository.records.count(RecordQuery(kind=KIND)) > 0

    def _new_key(
        self, tenant: str, request: CreateKey, secret: str, *, created_by: str
    ) -> _StoredKey:
        digest = digest_of(secret)
        key = Key(
            id=_id_of(digest),
            tenant_id=tenant,
            created_at=self._clock(),
            created_by=created_by,
            **asdict(request),
        )
        return _StoredKey(key=key, digest=digest)

    def _check(self, request: CreateKey) -> None:
        check_usd("daily_budget_usd", request.daily_budget_usd)
        expires = request.expires_at
        if expires is not None and expires <= self._clock():
            raise InvalidInput("expires_at: must be in the future")
        if request.environment_id is not None and request.agent_id is not None:
            raise InvalidInput("agent_id: a key is for an agent or for an environment, not both")
        if request.grants and request.agent_id is None:
            raise InvalidInput("grants: allowed only for a key of one agent")
        if request.environment_id is not None and request.role not in ("viewer", "user"):
            raise InvalidInput("role: the key of a worker has the role viewer or user")

    async def _check_creator(self, principal: Principal, request: CreateKey) -> None:
        """Raises: Forbidden: it would have more permissions than its creator."""
        if principal.agent_id is not None or principal.environment_id is not None:
            raise Forbidden("a key for one agent or environment cannot create keys")
        if not principal.key_id.startswith(f"{_ID_PREFIX}_"):
            return  # the operator of the machine, or a subject of an OIDC issuer
        maker = await self.get(principal.tenant, principal.key_id)
        if maker.is_narrow:
            raise Forbidden(f"the key {maker.name!r} is limited, so it cannot create keys")
        if maker.expires_at is not None and (
            request.expires_at is None or request.expires_at > maker.expires_at
        ):
            raise Forbidden(f"expires_at: at {maker.expires_at} at the latest, as the key itself")


async def ensure_first_key(records: Records, *, adopted: str | None = None) -> str | None:
    """Create the root tenant and an administrator's key, if there is none. Returns the secret if
    one was created: show it, because nobody can later. With `adopted`, that is the key.

    Raises: InvalidInput: `adopted` is easily guessed.
    """
    keys, tenants = Keys(records), Tenants(records)
    if adopted is not None:
        _check_chosen_secret(adopted)
        await tenants.ensure_root()
        await keys.set_admin_secret(adopted)
        return None
    if await keys.has_any():
        return None
    secret = new_secret()
    first = keys.first_key_change(secret)
    try:  # one write: of two processes that start at once, only one creates a key
        await records.write(tenants.create_change(CreateTenant(id=ROOT_TENANT)), first)
    except AlreadyExists:
        if await keys.has_any():
            return None
        await records.write(first)
    return secret


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_ID_PREFIX = "key"


def _id_of(digest: str) -> str:
    """The id of a key, so that it is found by its digest without a second index. 128 bits of the
    digest reveal nothing about a secret that cannot be guessed."""
    return f"{_ID_PREFIX}_{digest[:32]}"


def _check_chosen_secret(secret: str) -> None:
    is_plain = secret.isascii() and secret.isprintable() and " " not in secret and "," not in secret
    if not is_plain or len(secret) > MAX_SECRET:
        raise InvalidInput(
            f"{ADMIN_KEY_VARIABLE}: use letters, digits and punctuation, without spaces"
        )
    if len(secret) < MIN_CHOSEN_SECRET or len(set(secret)) < _MIN_DISTINCT_CHARS:
        weak = InvalidInput(
            f"{ADMIN_KEY_VARIABLE}: {MIN_CHOSEN_SECRET} random characters at least; "
            "this is guessed easily"
        )
        weak.add_note("openssl rand -hex 32")
        raise weak


def _index_columns(stored: _StoredKey) -> IndexColumns:
    return IndexColumns(label=stored.key.created_by, is_archived=stored.key.revoked_at is not None)
