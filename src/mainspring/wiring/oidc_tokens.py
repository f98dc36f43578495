"""Tokens of outside issuers, if any are configured; without, their library is not even imported."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

import aiohttp

from mainspring.core.errors import InvalidInput, NetworkRefused, Unauthenticated
from mainspring.service.access.oidc_issuers import OidcIssuer
from mainspring.service.access.principal import Principal

if TYPE_CHECKING:
    from mainspring.service.access.oidc import FetchBytes
    from mainspring.service.authorization.authentication import TokenVerifier


_SECONDS = 10.0
_MAX_BYTES = 1 << 20


def open_tokens(
    oidc_issuers: tuple[OidcIssuer, ...], fetch_bytes: FetchBytes
) -> TokenVerifier | None:
    """Raises: InvalidInput: an issuer that cannot be, or the extra is not installed."""
    if not oidc_issuers:
        return None
    try:  # by name: it is an extra
        module = import_module("mainspring.service.access.oidc")
    except ModuleNotFoundError as error:
        if error.name != "jwt":
            raise
        missing = InvalidInput("tokens of issuers need PyJWT, which is not installed")
        missing.add_note("pip install 'mainspring[oidc]'")
        raise missing from error
    return cast("TokenVerifier", module.IssuedTokens(oidc_issuers, fetch_bytes))


class CombinedTokens:
    """Tokens of several kinds; the first that knows one says whose it is."""

    def __init__(self, *kinds: TokenVerifier | None) -> None:
        self._kinds = tuple(kind for kind in kinds if kind is not None)

    def is_one(self, secret: str) -> bool:
        return any(kind.is_one(secret) for kind in self._kinds)

    async def principal(self, token: str) -> Principal:
        for kind in self._kinds:
            if kind.is_one(token):
                return await kind.principal(token)
        raise Unauthenticated("no such token")


async def fetch_issuer_keys(url: str) -> bytes:
    """What an issuer publishes. Raises: NetworkRefused."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as client,
            client.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise NetworkRefused(f"{url} answers {answer.status}")
            return await answer.content.read(_MAX_BYTES)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NetworkRefused(f"{url}: {error or 'no answer in time'}") from error
