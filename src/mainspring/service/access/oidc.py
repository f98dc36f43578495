"""Principals from signed tokens (JWT) of OIDC issuers. Needs the extra `mainspring[oidc]`."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast

import anyio
import jwt
import msgspec
from msgspec import Struct, field

from mainspring.core.errors import Forbidden, Unauthenticated
from mainspring.service.access.oidc_issuers import OidcIssuer, check_issuers
from mainspring.service.access.principal import ROLES, Principal, Role

FetchBytes: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Fetches a URL. It may raise anything."""

MAX_TOKEN = 16_384  # ASCII characters
FRESH_SECONDS = 3600.0
"""After this time the keys are fetched again."""
STALE_SECONDS = 24 * 3600.0
"""How long old keys stay valid if the issuer does not answer."""
RETRY_SECONDS = 30.0
"""The minimum between two fetches: tokens with made-up key ids must not cause requests."""
_FETCH_SECONDS = 10.0  # for the provider's documents
_MAX_KEYS = 100  # of a provider
_MAX_JWKS = 1_000_000  # bytes
_LOG = logging.getLogger("mainspring.oidc")


class IssuerKeySet(Struct, eq=False):
    """The public keys of one issuer, fetched when they are needed."""

    issuer: OidcIssuer
    fetch: FetchBytes
    monotonic: Callable[[], float]
    _keys: Mapping[str, jwt.PyJWK] = {}
    _fetched: float | None = None
    _tried: float | None = None
    _fetching: anyio.Lock = field(default_factory=anyio.Lock)

    async def key(self, kid: str | None) -> jwt.PyJWK:
        """Raises: Unauthenticated: no key has that id, or no keys are available."""
        if self._age() > FRESH_SECONDS or self._named(kid) is None:
            await self._refresh()
        if self._age() > STALE_SECONDS:
            raise Unauthenticated(f"the keys of {self.issuer.issuer} are not available")
        if (key := self._named(kid)) is None:
            raise Unauthenticated("the token is signed with a key that its issuer does not have")
        return key

    def _named(self, kid: str | None) -> jwt.PyJWK | None:
        if kid is None:  # allowed if the issuer has only one key
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    def _age(self) -> float:
        return float("inf") if self._fetched is None else self.monotonic() - self._fetched

    async def _refresh(self) -> None:
        now = self.monotonic()
        async with self._fetching:
            if self._tried is not None and now - self._tried < RETRY_SECONDS:
                return
            self._tried = now
            try:
                with anyio.fail_after(_FETCH_SECONDS):
                    keys = _parse_jwks(await self.fetch(self.issuer.jwks_url))
            except Exception as error:  # noqa: BLE001 (it may fail in any way; old keys remain)
                _LOG.warning("cannot fetch the keys of %s: %s", self.issuer.issuer, error)
                return
            self._keys, self._fetched = keys, now


_MAX_SUBJECT = 255
"""Characters, as OpenID Connect has it: people are told apart by the whole of it."""


class IssuedTokens:
    """The `TokenVerifier` of the authenticator."""

    def __init__(
        self,
        issuers: tuple[OidcIssuer, ...],
        fetch: FetchBytes,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises: InvalidInput."""
        check_issuers(issuers)
        self._issuers = {issuer.issuer: issuer for issuer in issuers}
        self._keys = {issuer.issuer: IssuerKeySet(issuer, fetch, monotonic) for issuer in issuers}

    def is_one(self, secret: str) -> bool:
        return secret.startswith("eyJ") and secret.count(".") == 2

    async def principal(self, token: str) -> Principal:
        """Raises: Unauthenticated, Forbidden: the token is valid but maps to no role or tenant."""
        issuer, kid, algorithm = self._read(token)
        key = await self._keys[issuer.issuer].key(kid)
        try:
            claims = jwt.decode(
                token,
                key=key,
                # the algorithms of key and token must be equal and allowed
                algorithms=[algorithm] if key.algorithm_name == algorithm else [],
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=issuer.leeway_seconds,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_sub": True},
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise Unauthenticated(f"the token is invalid: {error}") from None
        return _principal(issuer, claims)

    def _read(self, token: str) -> tuple[OidcIssuer, str | None, str]:
        """The issuer whose keys verify the token; nothing in the token is trusted yet."""
        if len(token) > MAX_TOKEN or not token.isascii():
            raise Unauthenticated("the token is invalid: it is too long, or not a JWT")
        try:
            header = jwt.get_unverified_header(token)
            claims = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Unauthenticated("the token is invalid: it cannot be decoded") from None
        issuer = self._issuers.get(str(claims.get("iss")))
        if issuer is None:
            raise Unauthenticated("the token is invalid: its issuer is not configured")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in issuer.algorithms:
            raise Unauthenticated(f"the token is invalid: it is signed with {algorithm!r:.20}")
        return issuer, kid if isinstance(kid, str) else None, str(algorithm)


def _parse_jwks(raw: bytes) -> Mapping[str, jwt.PyJWK]:
    if len(raw) > _MAX_JWKS:
        raise ValueError("too large")
    jwks = msgspec.json.decode(raw, type=dict[str, Any])
    keys: dict[str, jwt.PyJWK] = {}
    for index, jwk in enumerate(jwks.get("keys", [])[:_MAX_KEYS]):
        if jwk.get("kty") not in ("RSA", "EC", "OKP") or jwk.get("use", "sig") != "sig":
            continue  # a shared secret, or a key for something else
        try:
            keys[str(jwk.get("kid", f"#{index}"))] = jwt.PyJWK(jwk)
        except jwt.PyJWTError as error:
            _LOG.warning("an unsupported key: %s", type(error).__name__)
    return keys


def _principal(issuer: OidcIssuer, claims: Mapping[str, Any]) -> Principal:
    subject = str(claims["sub"])
    if not subject.strip() or len(subject) > _MAX_SUBJECT:
        raise Unauthenticated("the token is invalid: its subject is empty or too long")
    name = str(_claim(claims, issuer.name_claim) or subject)[:256]
    return Principal(
        tenant=_tenant(issuer, claims),
        key_id=f"oidc:{subject}",
        issuer=str(claims["iss"]),
        role=_role(issuer, claims),
        name=name,
    )


def _tenant(issuer: OidcIssuer, claims: Mapping[str, Any]) -> str:
    if issuer.tenant is not None:
        return issuer.tenant
    claim_values = _texts(_claim(claims, issuer.tenant_claim or ""))
    tenants = {issuer.tenants[item] for item in claim_values if item in issuer.tenants}
    if len(tenants) != 1:
        raise Forbidden(f"the claim {issuer.tenant_claim} maps to no tenant, or to several")
    return tenants.pop()


def _role(issuer: OidcIssuer, claims: Mapping[str, Any]) -> Role:
    claim_values = _texts(_claim(claims, issuer.role_claim))
    roles = [issuer.roles[item] for item in claim_values if item in issuer.roles]
    if not roles:
        raise Forbidden(f"the claim {issuer.role_claim} maps to no role")
    return ROLES[max(ROLES.index(item) for item in roles)]


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """The value of a claim: by its whole name first, since names may contain dots; else by path."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, object]", value).get(part)
    return value


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [item for item in cast("list[object]", value) if isinstance(item, str)]
    return []
