"""Issuers of tokens, as they are configured: whom we believe, and what their people may do here."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.service.access.principal import Role

SignatureAlgorithm: TypeAlias = Literal["RS256", "ES256", "EdDSA"]
"""Only those with a public key: what can be made with what we know is no proof."""

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class OidcIssuer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenID Connect issuer. Whoever it vouches for but is mapped to nothing is refused."""

    issuer: Annotated[str, Meta(min_length=1)]
    """Exactly as `iss` says it."""
    audience: Annotated[str, Meta(min_length=1)]
    jwks_url: str
    roles: Annotated[dict[str, Role], Meta(min_length=1)]
    """From what `role_claim` says to what it means here; of several, the highest."""
    role_claim: str = "roles"
    """Its value is a text or a list of them; dots go into objects: `realm_access.roles`."""
    tenant: str | None = None
    """Everybody's, or else:"""
    tenant_claim: str | None = None
    tenants: dict[str, str] = {}
    """From what `tenant_claim` says to a tenant's id."""
    name_claim: str = "email"
    algorithms: Annotated[tuple[SignatureAlgorithm, ...], Meta(min_length=1)] = (
        "RS256",
        "ES256",
        "EdDSA",
    )
    leeway_seconds: Annotated[int, Meta(ge=0, le=300)] = 30

    def __post_init__(self) -> None:
        if (self.tenant is None) == (self.tenant_claim is None):
            raise ValueError("give either tenant, or tenant_claim with tenants")
        if self.tenant_claim is not None and not self.tenants:
            raise ValueError("tenants: what the values of tenant_claim mean")


def check_issuers(oidc_issuers: tuple[OidcIssuer, ...]) -> None:
    """Raises: InvalidInput: their keys would come over a line that anybody can change."""
    for oidc_issuer in oidc_issuers:
        parts = urlsplit(oidc_issuer.jwks_url)
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not (parts.scheme == "https" and parts.hostname) and not is_local:
            raise InvalidInput(f"jwks_url: {oidc_issuer.jwks_url} is no https:// address")
    if len({oidc_issuer.issuer for oidc_issuer in oidc_issuers}) != len(oidc_issuers):
        raise InvalidInput("issuer: one is there twice")
