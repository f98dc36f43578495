"""Authentication: who makes a request, whether they may make it, and whether they make too many."""

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
from mainspring.service.access.principal import Principal, Role
from mainspring.service.access.rate_limits import Rate, RateLimitStatus, TokenBuckets
from mainspring.service.access.request_ids import check_ids_exist, ids_in
from mainspring.service.access.tenants import Tenant, Tenants
from mainspring.service.authorization.key_scope import KeyScope
from mainspring.service.storage.ttl_cache import TtlCache

_FORWARDED = "x-forwarded-for"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCredentials:
    headers: Mapping[str, str]
    """By their names in lower case; what was sent several times is joined by commas."""
    path: Mapping[str, str] = field(default_factory=dict[str, str])
    """The ids that stand in the path: `session_id` and the like."""
    address: str = ""
    """Of the client."""
    is_inside: bool = False
    """It was let in before and has stayed, as who reads a stream does: no other request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationResult:
    who: Principal
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """For the answer, whatever it will be."""
    refusal: MainspringError | None = None
    """Why it may not come in after all, though we know who it is."""


def join_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """One value a name, as HTTP has it. Two keys in two headers of one name are then no key. What
    is not UTF-8 is replaced, so that it can be written down."""
    found: dict[str, str] = {}
    for name, sent in headers:
        low = name.lower()
        value = sent.encode(errors="surrogateescape").decode(errors="replace")
        found[low] = f"{found[low]},{value}" if low in found else value
    return found


def client_address(peer: str, headers: Mapping[str, str], proxies: frozenset[str]) -> str:
    """Whom a proxy speaks for, if it is one of ours; others may write there what they like."""
    if peer not in proxies:
        return peer
    for hop in reversed(headers.get(_FORWARDED, "").split(",")):
        if (address := hop.strip()) and address not in proxies:
            return address
    return peer


_LOG = logging.getLogger("mainspring.door")

KEY_CACHE_SECONDS = 3.0
ACTING_AGENT_HEADER = "x-mainspring-agent"
"""An agent's own request says whose it is with this header. It only ever takes rights away."""
WORKSPACE_HEADER = "anthropic-workspace-id"
ANONYMOUS = Principal(tenant="", key_id="", role="viewer", name="nobody")
"""Who asks at a route that needs no key."""


DecodedPart: TypeAlias = tuple[object, object]
"""A part of a request, and the type that it was decoded as."""


class RoutePolicy(Protocol):
    """What of a route the doorkeeper looks at."""

    @property
    def role(self) -> Role: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def for_agent_keys(self) -> bool: ...
    @property
    def for_worker_keys(self) -> bool: ...


class TokenVerifier(Protocol):
    """People whom somebody else vouches for."""

    def is_one(self, secret: str) -> bool: ...

    async def principal(self, token: str) -> Principal:
        """Raises: Unauthenticated, Forbidden."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """For whom nothing else is said."""

    key: Rate = field(default_factory=lambda: Rate(12_000))
    tenant: Rate = field(default_factory=lambda: Rate(60_000))
    failures: Rate = field(default_factory=lambda: Rate(30))
    """Of one address, with keys that do not hold."""


class Authenticator:
    def __init__(
        self,
        records: Records,
        *,
        rate_limits: RateLimits | None = None,
        token_verifier: TokenVerifier | None = None,
        clock: Clock = clocks.now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._keys = Keys(records, clock=clock)
        self._rates = rate_limits or RateLimits()
        self._scope = KeyScope(records)
        self._token_verifier = token_verifier
        self._clock = clock
        self._halts = Halts(records, clock=clock, monotonic=monotonic)
        self._known = TtlCache(self._find_key, seconds=KEY_CACHE_SECONDS, monotonic=monotonic)
        tenants = Tenants(records, clock=clock)
        self._tenants = TtlCache(tenants.get, seconds=KEY_CACHE_SECONDS, monotonic=monotonic)
        self._buckets = TokenBuckets(monotonic=monotonic)
        self._strangers = TokenBuckets(monotonic=monotonic)

    async def admit(
        self, credentials: RequestCredentials, route: RoutePolicy
    ) -> AuthenticationResult:
        """Raises: Unauthenticated, and RateLimited for who was it too often."""
        if route.is_open:
            return AuthenticationResult(who=ANONYMOUS)
        who, key_rate = await self._identify(credentials)
        try:
            who = _with_acting_agent(who, credentials.headers)
            tenant = await self._tenant(who)
        except (Forbidden, InvalidInput) as error:
            return AuthenticationResult(who=who, refusal=error)
        if credentials.is_inside:
            return AuthenticationResult(
                who=who, refusal=await self._refusal(who, credentials, route)
            )
        standing = self._take_tokens(who, key_rate, tenant)
        return AuthenticationResult(
            who=who,
            headers=self._rate_limit_headers(standing),
            refusal=_rate_limit_error(standing) or await self._refusal(who, credentials, route),
        )

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
        if digest not in self._known:  # a key that has held is not shut out by its neighbours
            self._check_failures(address)
        try:
            key = await self._known.get(digest)
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
            except MainspringError as error:  # no reason to let nobody in
                _LOG.warning("the use of %s was not noted: %s", key.id, error)
        return key

    def _check_failures(self, address: str) -> None:
        wait = self._strangers.wait_seconds(_network_of(address), self._rates.failures)
        if wait:
            raise RateLimited(
                "too many keys from this address that do not hold", retry_after_seconds=wait
            )

    def _count_failure(self, address: str, error: Unauthenticated) -> Unauthenticated:
        self._strangers.take((_network_of(address), self._rates.failures))
        return error

    async def _tenant(self, who: Principal) -> Tenant:
        try:
            tenant = await self._tenants.get(who.tenant)
        except NotFound:
            raise Forbidden(f"there is no tenant {who.tenant} any more") from None
        if tenant.disabled_at is not None:
            raise Forbidden(f"the tenant {tenant.id} is disabled")
        return tenant

    def _take_tokens(self, who: Principal, key_rate: Rate, tenant: Tenant) -> RateLimitStatus:
        """Where it stands: with the one of both buckets that refuses, or with its own."""
        given = tenant.requests_per_minute
        rate = self._rates.tenant if given is None else Rate(given)
        own, shared = self._buckets.take(
            (f"{who.tenant}/{who.key_id}", key_rate), (who.tenant, rate)
        )
        return shared if shared.wait_seconds > own.wait_seconds else own

    def _rate_limit_headers(self, rate_limit_status: RateLimitStatus) -> Mapping[str, str]:
        reset = self._clock() + timedelta(seconds=rate_limit_status.full_in_seconds)
        return {
            "anthropic-ratelimit-requests-limit": str(rate_limit_status.rate.per_minute),
            "anthropic-ratelimit-requests-remaining": str(rate_limit_status.remaining),
            "anthropic-ratelimit-requests-reset": reset.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    async def _refusal(
        self, who: Principal, credentials: RequestCredentials, route: RoutePolicy
    ) -> MainspringError | None:
        try:
            who.require(route.role)
            if who.agent_id is not None or who.environment_id is not None:
                await self._scope.check_route(who, route, credentials.path)
            if who.acting_agent is not None:
                await self._check_halts(who)
        except MainspringError as error:
            return error
        return None

    async def check_named(
        self, who: Principal, path: Mapping[str, str], query: DecodedPart, body: DecodedPart
    ) -> None:
        """Whether it may name what it does in its query and body, and whether what the body names
        exists. A query only chooses from what there is.

        Raises: Forbidden, NotFound.
        """
        named = ids_in(*body)
        if who.agent_id is not None or who.environment_id is not None:
            await self._scope.check_ids(who, path, [*ids_in(*query), *named])
        await check_ids_exist(self._records, who.tenant, named)

    async def _check_halts(self, who: Principal) -> None:
        """People must still be able to look and to mend; what is stopped must do nothing."""
        why = await self._halts.why_stopped(who.tenant, who.acting_agent)
        if why is not None:
            raise Forbidden(why)


def presented_secret(headers: Mapping[str, str]) -> tuple[str, bool]:
    """The secret, and whether it came as a bearer's.

    Raises: Unauthenticated: there is none, or two.
    """
    own = headers.get("x-api-key", "").strip()
    scheme, _, rest = headers.get("authorization", "").strip().partition(" ")
    bearer = rest.strip() if scheme.lower() == "bearer" else ""
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


def _with_acting_agent(who: Principal, headers: Mapping[str, str]) -> Principal:
    """Raises: Forbidden: another workspace is meant. InvalidInput: no name of an agent."""
    workspace = headers.get(WORKSPACE_HEADER)
    if workspace and workspace != who.tenant:
        raise Forbidden(f"{WORKSPACE_HEADER}: this key is of {who.tenant}; leave the header out")
    named = headers.get(ACTING_AGENT_HEADER)
    if named is None or who.acting_agent is not None:  # what a key was lent to cannot be disowned
        return who
    if not named.strip() or len(named) > 256 or not (named.isascii() and named.isprintable()):
        raise InvalidInput(f"{ACTING_AGENT_HEADER}: the id of an agent")
    return replace(who, acting_agent=named.strip())


def _rate_limit_error(rate_limit_status: RateLimitStatus) -> RateLimited | None:
    if not rate_limit_status.is_refused:
        return None
    return RateLimited(
        f"more than {rate_limit_status.rate.per_minute} requests a minute",
        retry_after_seconds=rate_limit_status.wait_seconds,
    )


def _network_of(address: str) -> str:
    """One household has many addresses of version 6: they count as one."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    return str(ipaddress.ip_network((known, 64), strict=False)) if known.version == 6 else address
