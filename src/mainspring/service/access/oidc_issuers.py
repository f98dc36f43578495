"""Configured OIDC issuers, and the roles and tenants that their claims map to."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.service.access.principal import Role

SignatureAlgorithm: TypeAlias = Literal["RS256", "ES256", "EdDSA"]
"""Only algorithms with a public key: a token that we could have made ourselves proves nothing."""

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class OidcIssuer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenID Connect issuer. A subject that maps to no role or tenant is refused."""

    issuer: Annotated[str, Meta(min_length=1)]
    """Exactly as in the claim `iss`."""
    audience: Annotated[str, Meta(min_length=1)]
    jwks_url: str
    roles: Annotated[dict[str, Role], Meta(min_length=1)]
    """Maps values of `role_claim` to roles; of several, the highest applies."""
    role_claim: str = "roles"
    """A string or a list of strings; dots descend into objects: `realm_access.roles`."""
    tenant: str | None = None
    """The tenant of all subjects, unless `tenant_claim` is given."""
    tenant_claim: str | None = None
    tenants: dict[str, str] = {}
    """Maps values of `tenant_claim` to tenant ids."""
    name_claim: str = "email"
    algorithms: Annotated[tuple[SignatureAlgorithm, ...], Meta(min_length=1)] = (
        "RS256",
        "ES256",
        "EdDSA",
    )
    leeway_seconds: Annotated[int, Meta(ge=0, le=300)] = 30

    def __post_init__(self) -> None:
        if (self.tenant is None) == (self.tenant_claim is None):
            raise ValueError("set either tenant, or tenant_claim with tenants")
        if self.tenant_claim is not None and not self.tenants:
            raise ValueError("tenants: required with tenant_claim; maps its values to tenants")


def check_issuers(issuers: tuple[OidcIssuer, ...]) -> None:
    """Raises: InvalidInput: the keys would be fetched over an unencrypted connection."""
    for issuer in issuers:
        parts = urlsplit(issuer.jwks_url)
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not (parts.scheme == "https" and parts.hostname) and not is_local:
            raise InvalidInput(f"jwks_url: {issuer.jwks_url} is not an https:// address")
    if len({issuer.issuer for issuer in issuers}) != len(issuers):
        raise InvalidInput("issuer: must be unique")
