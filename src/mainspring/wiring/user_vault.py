"""The user's vault, and the secrets to redact."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mainspring.capabilities.vault.user_vault import UserVault
from mainspring.config import SEARCH_KEY_VARIABLES, Settings
from mainspring.core.errors import InvalidInput
from mainspring.log.provenance import PROCESS_KEY

_LOG = logging.getLogger("mainspring.store")


def user_vault(settings: Settings) -> UserVault:
    return UserVault(
        path=Path(settings.vault),
        written_key=settings.vault_key,
        in_keyring=settings.vault_in_keyring,
    )


def store_key(settings: Settings) -> bytes:
    """The key that binds stores to this installation. If none can be kept, it lasts as long as this
    process, which then trusts only what it wrote itself."""
    try:
        return user_vault(settings).store_key()
    except (InvalidInput, OSError) as error:
        _warn_once(str(error))
        return PROCESS_KEY


@cache
def _warn_once(why: str) -> None:
    _LOG.warning(
        "mainspring: no key can be kept (%s): what this command writes to the store counts as"
        " foreign afterwards; set MAINSPRING_VAULT_KEY",
        why,
    )


def known_secrets(settings: Settings) -> Mapping[str, str]:
    """The secrets to redact: the keys of providers and of the vault, and all secrets in it.

    Raises:
        InvalidInput: the vault exists but cannot be opened, so the log cannot be redacted.
    """
    names = (*settings.keys, *SEARCH_KEY_VARIABLES)
    keys = {name: settings.secrets[name] for name in names if name in settings.secrets}
    if settings.vault_key is not None:
        keys["MAINSPRING_VAULT_KEY"] = settings.vault_key
    if settings.admin_key is not None:
        keys["MAINSPRING_ADMIN_KEY"] = settings.admin_key
    return {**keys, **user_vault(settings).values()}
