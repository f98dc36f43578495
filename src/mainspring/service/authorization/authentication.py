"""Authentication: the principal of a request, its permissions, and its rate limits."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol, TypeAlias

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import (
    Forbidden,
    InvalidInput,
    MainspringError,
    NotFound,
    RateLimited,
    Unauthenticated,
)
from mainspring.log.records import Records
from mainspring.service.access.api_keys import MAX_SECRET, Key, Keys, digest_of
from mainspring.service.access.kill_switch import Halts
from mainspring.service.access.principal import Principal
from mainspring.service.access.rate_limits import Rate, RateLimitStatus, TokenBuckets
from mainspring.service.access.request_ids import check_ids_exist, ids_in
from mainspring.service.access.tenants import Tenant, Tenants
from mainspring.service.authorization.key_scope import KeyScope, RoutePolicy
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.repository import Repository
from mainspring.service.storage.ttl_cache import TtlCache

_FORWARDED = "x-forwarded-for"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCredentials:
    headers: Mapping[str, str]
    """By lower-case name; repeated headers are joined with commas."""
    path: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids in the path, such as `session_id`."""
    address: str = ""
    """The address of the client."""
    is_recheck: bool = False
    """Whether this is a re-check of an open stream, not a new request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationResult:
    who: Principal
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that are sent with any response."""
    refusal: MainspringError | None = None
    """Why the request is refused although its principal is known."""


def join_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """One value for each name: two keys in two headers of the same name are then invalid. Bytes
    that are not UTF-8 are replaced, so that headers can be logged."""
    joined: dict[str, str] = {}
    for name, sent_value in headers:
        low = name.lower()
        value = sent_value.encode(errors="surrogateescape").decode(errors="replace")
        joined[low] = f"{joined[low]},{value}" if low in joined else value
    return joined


def client_address(peer: str, headers: Mapping[str, str], proxies: frozenset[str]) -> str:
    """The client address that a trusted proxy forwards; other senders could forge it."""
    if peer not in proxies:
        return peer
    for hop in reversed(headers.get(_FORWARDED, "").split(",")):
        if (address := hop.strip()) and address not in proxies:
            return address
    return peer


_LOG = logging.getLogger("mainspring.authentication")

KEY_CACHE_SECONDS = 3.0  # until a revoked key is refused everywhere
ACTING_AGENT_HEADER = "x-mainspring-agent"
"""Names the agent that makes a request. It can only remove permissions."""
WORKSPACE_HEADER = "anthropic-workspace-id"
ANONYMOUS = Principal(tenant="", key_id="", role="viewer", name="nobody")
"""The principal of routes that need no key."""


DecodedPart: TypeAlias = tuple[object, object]
"""A part of a request, with the type that it was decoded as."""


class TokenVerifier(Protocol):
    """Verifies tokens of external issuers."""

    def is_one(self, secret: str) -> bool: ...

    async def principal(self, token: str) -> Principal:
        """Raises: Unauthenticated, Forbidden."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Limits for principals without limits of their own."""

    key: Rate = field(default_factory=lambda: Rate(12_000))
    tenant: Rate = field(default_factory=lambda: Rate(60_000))
    failures: Rate = field(default_factory=lambda: Rate(30))
    """Attempts with invalid keys from one address."""


class Authenticator:
    def __init__(
        self,
        records: Records,
        *,
        rate_limits: RateLimits | None = None,
        token_verifier: TokenVerifier | None = None,
        sessions: Repository[SessionRecord] | None = None,
        clock: Clock = clocks.now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sessions`: the repository of `Sessions`, so that a request decodes its session once."""
        self._records = records
        self._keys = Keys(records, clock=clock)
        self._rates = rate_limits or RateLimits()
        self._scope = KeyScope(records, sessions)
        self._token_verifier = token_verifier
        self._clock = clock
        self._halts = Halts(records, clock=clock, monotonic=monotonic)
        self._cached_keys = TtlCache(self._find_key, seconds=KEY_CACHE_SECONDS, monotonic=monotonic)
        tenants = Tenants(records, clock=clock)
        self._tenants = TtlCache(tenants.get, seconds=KEY_CACHE_SECONDS, monotonic=monotonic)
        self._buckets = TokenBuckets(monotonic=monotonic)
        self._failures = TokenBuckets(monotonic=monotonic)

    async def admit(
        self, credentials: RequestCredentials, route: RoutePolicy
    ) -> AuthenticationResult:
        """Raises: Unauthenticated, RateLimited: too many failed attempts."""
        if route.is_open:
            return AuthenticationResult(who=ANONYMOUS)
        who, key_rate = await self._identify(credentials)
        try:
            who = _with_acting_agent(who, credentials.headers)
            tenant = await self._tenant(who)
        except (Forbidden, InvalidInput) as error:
            return AuthenticationResult(who=who, refusal=error)
        if credentials.is_recheck:
            return AuthenticationResult(
                who=who, refusal=await self._refusal(who, credentials, route)
            )
        status = self._take_tokens(who, key_rate, tenant)
        if status.wait_seconds:
            text = f"more than {status.rate.per_minute} requests per minute"
            refusal = RateLimited(text, retry_after_seconds=status.wait_seconds)
        else:
            refusal = await self._refusal(who, credentials, route)
        reset = self._clock() + timedelta(seconds=status.full_in_seconds)
        headers = {
            "anthropic-ratelimit-requests-limit": str(status.rate.per_minute),
            "anthropic-ratelimit-requests-remaining": str(status.remaining),
            "anthropic-ratelimit-requests-reset": reset.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return AuthenticationResult(who=who, headers=headers, refusal=refusal)

    async def _identify(self, credentials: RequestCredentials) -> tuple[Principal, Rate]:
        secret, is_bearer = presented_secret(credentials.headers)
        if self._token_verifier is not None and is_bearer and self._token_verifier.is_one(secret):
            return await self._token_verifier.principal(secret), self._rates.key
        if not secret.isascii() or len(secret) > MAX_SECRET:
            raise self._count_failure(credentials.address, Unauthenticated("no such API key"))
        key = await self._key(secret, credentials.address)
        rate = key.requests_per_minute
        return _principal(key), self._rates.key if rate is None else Rate(rate)

    async def _key(self, secret: str, address: str) -> Key:
        digest = digest_of(secret)
        # a valid key is not locked out by others at its address
        if digest not in self._cached_keys:
            self._check_failures(address)
        try:
            key = await self._cached_keys.get(digest)
        except Unauthenticated as error:
            raise self._count_failure(address, error) from None
        if key.revoked_at is not None:
            raise self._count_failure(address, Unauthenticated("this API key was revoked"))
        if key.expires_at is not None and key.expires_at <= self._clock():
            raise self._count_failure(address, Unauthenticated("this API key has expired"))
        return key

    async def _find_key(self, digest: str) -> Key:
        key = await self._keys.find(digest)
        if key.revoked_at is None:
            try:
                await self._keys.note_use(key)
            except MainspringError as error:  # not a reason to refuse the request
                _LOG.warning("could not record the use of %s: %s", key.id, error)
        return key

    def _check_failures(self, address: str) -> None:
        wait = self._failures.wait_seconds(_network_of(address), self._rates.failures)
        if wait:
            raise RateLimited("too many invalid keys from this address", retry_after_seconds=wait)

    def _count_failure(self, address: str, error: Unauthenticated) -> Unauthenticated:
        self._failures.take((_network_of(address), self._rates.failures))
        return error

    async def _tenant(self, principal: Principal) -> Tenant:
        try:
            tenant = await self._tenants.get(principal.tenant)
        except NotFound:
            raise Forbidden(f"the tenant {principal.tenant} no longer exists") from None
        if tenant.disabled_at is not None:
            raise Forbidden(f"the tenant {tenant.id} is disabled")
        return tenant

    def _take_tokens(self, principal: Principal, key_rate: Rate, tenant: Tenant) -> RateLimitStatus:
        """The status of the bucket that refuses, else of the key's own bucket."""
        per_minute = tenant.requests_per_minute
        rate = self._rates.tenant if per_minute is None else Rate(per_minute)
        own, shared = self._buckets.take(
            (f"{principal.tenant}/{principal.key_id}", key_rate), (principal.tenant, rate)
        )
        return shared if shared.wait_seconds > own.wait_seconds else own

    async def _refusal(
        self, principal: Principal, credentials: RequestCredentials, route: RoutePolicy
    ) -> MainspringError | None:
        try:
            principal.require(route.role)
            if principal.agent_id is not None or principal.environment_id is not None:
                await self._scope.check_route(principal, route, credentials.path)
            if principal.acting_agent is not None:
                await self._check_halts(principal)
        except MainspringError as error:
            return error
        return None

    async def check_named(
        self, principal: Principal, path: Mapping[str, str], query: DecodedPart, body: DecodedPart
    ) -> None:
        """Check that the principal may name the ids in the query and body, and that those in the
        body exist. A query only selects from what exists.

        Raises: Forbidden, NotFound.
        """
        ids = ids_in(*body)
        if principal.agent_id is not None or principal.environment_id is not None:
            await self._scope.check_ids(principal, path, [*ids_in(*query), *ids])
        await check_ids_exist(self._records, principal.tenant, ids)

    async def _check_halts(self, principal: Principal) -> None:
        """While stopped, people may still read and repair; agents may do nothing."""
        why = await self._halts.why_stopped(principal.tenant, principal.acting_agent)
        if why is not None:
            raise Forbidden(why)


def presented_secret(headers: Mapping[str, str]) -> tuple[str, bool]:
    """The secret, and whether it was sent as a bearer token.

    Raises: Unauthenticated: there is none, or two.
    """
    own = headers.get("x-api-key", "").strip()
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    if own and bearer and own != bearer:
        raise Unauthenticated("two different keys: send x-api-key or authorization, not both")
    if not (own or bearer):
        raise Unauthenticated("no API key: send it as x-api-key, or as authorization: Bearer")
    return own or bearer, not own


def _principal(key: Key) -> Principal:
    return Principal(
        tenant=key.tenant_id,
        key_id=key.id,
        role=key.role,
        name=key.name,
        agent_id=key.agent_id,
        environment_id=key.environment_id,
        acting_agent=key.lent_to,
        grants=frozenset(key.grants),
    )


def _with_acting_agent(principal: Principal, headers: Mapping[str, str]) -> Principal:
    """Raises: Forbidden: it names another workspace. InvalidInput: not the id of an agent."""
    workspace = headers.get(WORKSPACE_HEADER)
    if workspace and workspace != principal.tenant:
        raise Forbidden(
            f"{WORKSPACE_HEADER}: this key belongs to {principal.tenant}; omit the header"
        )
    agent_id = headers.get(ACTING_AGENT_HEADER)
    if (
        agent_id is None or principal.acting_agent is not None
    ):  # a header cannot change a key's agent
        return principal
    if (
        not agent_id.strip()
        or len(agent_id) > 256
        or not (agent_id.isascii() and agent_id.isprintable())
    ):
        raise InvalidInput(f"{ACTING_AGENT_HEADER}: must be the id of an agent")
    return replace(principal, acting_agent=agent_id.strip())


def _network_of(address: str) -> str:
    """One client has many IPv6 addresses: a /64 network counts as one."""
    try:
        current = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    return (
        str(ipaddress.ip_network((current, 64), strict=False)) if current.version == 6 else address
    )
