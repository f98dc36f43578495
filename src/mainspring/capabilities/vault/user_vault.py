"""The vault of one user: its file, the source of its key, and the values sealed with that key."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.core import clock
from mainspring.core.lazy_module import LazyModule
from mainspring.core.ports import Credential

if TYPE_CHECKING:
    from mainspring.capabilities.vault import aes_seal, vault_file, vault_key
else:  # importing cryptography is slow, and most commands need no vault
    aes_seal = LazyModule("mainspring.capabilities.vault.aes_seal")
    vault_file = LazyModule("mainspring.capabilities.vault.vault_file")
    vault_key = LazyModule("mainspring.capabilities.vault.vault_key")

_STORE_CONTEXT = b"mainspring: the rows of a store"


class UserVault(Struct, frozen=True, kw_only=True):
    """Also a `Seal` for the service's secrets, which reads the key only when it is used."""

    path: Path
    written_key: str | None = None
    """The key, if it is not in the keyring or in a file beside the vault."""
    in_keyring: bool = False

    def __repr__(self) -> str:
        return f"UserVault({self.path})"

    @property
    def exists(self) -> bool:
        return self.path.is_file()

    def open(self) -> vault_file.Vault:
        """Open the vault to store secrets; the key is created on first use.

        Raises:
            InvalidInput: there is no key, or it is invalid.
        """
        return vault_file.Vault(self.path, self._key(), clock=clock.now)

    def secrets(self) -> list[vault_file.Secret]:
        """Raises: InvalidInput: the vault exists and cannot be opened."""
        return self.open().secrets() if self.exists else []

    def values(self) -> dict[str, str]:
        """The values by name. Raises: as `secrets`."""
        return {secret.name: secret.value for secret in self.secrets()}

    def put(self, name: str, value: str) -> None:
        """Store a secret without hosts, so that no program may use it. Raises: InvalidInput."""
        self.open().put(name, value, ())

    def remove(self, name: str) -> None:
        """Raises: InvalidInput: there is no such secret."""
        self.open().remove(name)

    def credentials(self, names: Collection[str] | None = None) -> tuple[Credential, ...]:
        """Credentials that programs in a sandbox may use without seeing them: the named ones, or
        all that have hosts."""
        return tuple(
            Credential(name=secret.name, value=secret.value, hosts=secret.hosts)
            for secret in self.secrets()
            if secret.hosts and (names is None or secret.name in names)
        )

    def lock(self, name: str) -> AbstractContextManager[None]:
        """A lock for one process at a time; entering it waits without limit."""
        return vault_file.locked(self.path.with_name(f"{name}.lock"))

    def open_seal(self) -> aes_seal.AesSeal:
        """A seal with this vault's key.

        Raises:
            InvalidInput: there is no key, or it is invalid.
        """
        return aes_seal.AesSeal(self._key())

    def store_key(self) -> bytes:
        """The key that binds stores to this installation: it follows from the vault's key, which
        cannot be computed from it.

        Raises: InvalidInput, OSError.
        """
        return hmac.digest(self._key(), _STORE_CONTEXT, "sha256")

    def seal(self, plain: bytes, context: str) -> bytes:
        return self.open_seal().seal(plain, context)

    def unseal(self, sealed: bytes, context: str) -> bytes:
        return self.open_seal().unseal(sealed, context)

    def _key(self) -> bytes:
        """The key, created on first use, but never for an existing vault, which has another key."""
        create = not self.exists
        if self.written_key is not None:
            return vault_key.decoded(self.written_key, source="MAINSPRING_VAULT_KEY")
        if self.in_keyring:
            return vault_key.from_keyring(create=create)
        return vault_key.from_file(self.path.with_suffix(".key"), create=create)
