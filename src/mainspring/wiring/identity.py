"""Tokens of outside issuers, if any are configured; without, their library is not even imported."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from mainspring.core.errors import InvalidInput
from mainspring.service.issuers import Issuer

if TYPE_CHECKING:
    from mainspring.service.door import Tokens
    from mainspring.service.oidc import Fetch


def open_tokens(issuers: tuple[Issuer, ...], fetch: Fetch) -> Tokens | None:
    """Raises: InvalidInput: an issuer that cannot be, or the extra is not installed."""
    if not issuers:
        return None
    try:  # by name: it is an extra
        module = import_module("mainspring.service.oidc")
    except ModuleNotFoundError as error:
        if error.name != "jwt":
            raise
        missing = InvalidInput("tokens of issuers need PyJWT, which is not installed")
        missing.add_note("pip install 'mainspring[oidc]'")
        raise missing from error
    return cast("Tokens", module.IssuedTokens(issuers, fetch))
