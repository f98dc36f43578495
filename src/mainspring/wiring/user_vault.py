"""The vault of this user, opened with the key that the settings name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from mainspring.config import SEARCH_KEY_VARIABLES, Settings
from mainspring.core import clock
from mainspring.core.lazy_module import LazyModule
from mainspring.core.ports import Credential

if TYPE_CHECKING:
    from mainspring.capabilities.vault import aes_seal
    from mainspring.capabilities.vault.vault_file import Vault
else:
    aes_seal = LazyModule(
        "mainspring.capabilities.vault.aes_seal"
    )  # cryptography is slow to import


def has_vault(settings: Settings) -> bool:
    return Path(settings.vault).is_file()


def open_vault(settings: Settings) -> Vault:
    """To store secrets: a key is made on first use.

    Raises:
        InvalidInput: there is no key, or it is invalid.
    """
    return _open_vault(settings, create=not has_vault(settings))


def known_secrets(settings: Settings) -> Mapping[str, str]:
    """What nobody may see: the keys of providers and of the vault, and all secrets in it.

    Raises:
        InvalidInput: there is a vault that cannot be opened: without it, nobody knows what to
            remove from the log.
    """
    names = (*settings.keys, *SEARCH_KEY_VARIABLES)
    keys = {name: settings.secrets[name] for name in names if name in settings.secrets}
    if settings.vault_key is not None:
        keys["MAINSPRING_VAULT_KEY"] = settings.vault_key
    if settings.admin_key is not None:
        keys["MAINSPRING_ADMIN_KEY"] = settings.admin_key
    if not has_vault(settings):
        return keys
    secrets = _open_vault(settings, create=False).secrets()
    return {**keys, **{secret.name: secret.value for secret in secrets}}


def vault_credentials(
    settings: Settings, names: Collection[str] | None = None
) -> tuple[Credential, ...]:
    """Credentials that programs in a sandbox may use without seeing them: the named ones, or all
    that have hosts."""
    if not has_vault(settings):
        return ()
    return tuple(
        Credential(name=secret.name, value=secret.value, hosts=secret.hosts)
        for secret in _open_vault(settings, create=False).secrets()
        if secret.hosts and (names is None or secret.name in names)
    )


def vault_key(settings: Settings, *, create: bool) -> bytes:
    """
    Raises:
        InvalidInput: there is no key, or it is invalid.
    """
    keys = import_module("mainspring.capabilities.vault.vault_key")
    if settings.vault_key is not None:
        return cast("bytes", keys.decoded(settings.vault_key, source="MAINSPRING_VAULT_KEY"))
    if settings.vault_in_keyring:
        return cast("bytes", keys.from_keyring(create=create))
    return cast("bytes", keys.from_file(Path(settings.vault).with_suffix(".key"), create=create))


def _open_vault(settings: Settings, *, create: bool) -> Vault:
    # by name: a command that needs no vault does not wait for the import of cryptography
    vault_file = import_module("mainspring.capabilities.vault.vault_file")
    key = vault_key(settings, create=create)
    return cast("Vault", vault_file.Vault(Path(settings.vault), key, clock=clock.now))


def open_seal(settings: Settings) -> aes_seal.AesSeal:
    """The seal of the service's secrets, with the key of the vault, which is made on first use.

    Raises:
        InvalidInput: there is no key, or it is invalid.
    """
    return aes_seal.AesSeal(vault_key(settings, create=not has_vault(settings)))


class LazySeal(Struct, frozen=True):
    """The seal of these settings, opened when something is to be sealed: to look needs no key."""

    settings: Settings

    def seal(self, plain: bytes, context: str) -> bytes:
        return open_seal(self.settings).seal(plain, context)

    def unseal(self, sealed: bytes, context: str) -> bytes:
        return open_seal(self.settings).unseal(sealed, context)
