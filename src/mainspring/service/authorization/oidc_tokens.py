"""Verifies tokens of external issuers; the library is imported only if any are configured."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from mainspring.core.errors import InvalidInput, Unauthenticated
from mainspring.service.access.oidc_issuers import OidcIssuer
from mainspring.service.access.principal import Principal

if TYPE_CHECKING:
    from mainspring.service.access.oidc import FetchBytes
    from mainspring.service.authorization.authentication import TokenVerifier


def open_tokens(
    oidc_issuers: tuple[OidcIssuer, ...], fetch_bytes: FetchBytes
) -> TokenVerifier | None:
    """Raises: InvalidInput: an issuer is invalid, or the extra is not installed."""
    if not oidc_issuers:
        return None
    try:  # imported by name: an optional dependency
        module = import_module("mainspring.service.access.oidc")
    except ModuleNotFoundError as error:
        if error.name != "jwt":
            raise
        problem = InvalidInput("tokens of issuers need PyJWT, which is not installed")
        problem.add_note("pip install 'mainspring[oidc]'")
        raise problem from error
    return cast("TokenVerifier", module.IssuedTokens(oidc_issuers, fetch_bytes))


class CombinedTokens:
    """Verifies tokens of several kinds; the first kind that recognises one decides."""

    def __init__(self, *kinds: TokenVerifier | None) -> None:
        self._kinds = tuple(kind for kind in kinds if kind is not None)

    def is_one(self, secret: str) -> bool:
        return any(kind.is_one(secret) for kind in self._kinds)

    async def principal(self, token: str) -> Principal:
        for kind in self._kinds:
            if kind.is_one(token):
                return await kind.principal(token)
        raise Unauthenticated("unknown token")
