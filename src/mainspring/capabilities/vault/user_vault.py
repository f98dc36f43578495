"""The vault of one user: its file, where its key comes from, and what is sealed with that key."""

from __future__ import annotations

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
else:  # a command that needs no vault does not wait for the import of cryptography
    aes_seal = LazyModule("mainspring.capabilities.vault.aes_seal")
    vault_file = LazyModule("mainspring.capabilities.vault.vault_file")
    vault_key = LazyModule("mainspring.capabilities.vault.vault_key")


class UserVault(Struct, frozen=True, kw_only=True):
    """Also a `Seal` of the service's secrets, whose key is read when something is to be sealed."""

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
        """To store secrets: a key is made on first use.

        Raises:
            InvalidInput: there is no key, or it is invalid.
        """
        return vault_file.Vault(self.path, self._key(), clock=clock.now)

    def secrets(self) -> list[vault_file.Secret]:
        """Raises: InvalidInput: there is a vault that cannot be opened."""
        return self.open().secrets() if self.exists else []

    def values(self) -> dict[str, str]:
        """By name. Raises: as `secrets`."""
        return {secret.name: secret.value for secret in self.secrets()}

    def put(self, name: str, value: str) -> None:
        """Without hosts: no program may use it. Raises: InvalidInput."""
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
        """For one process at a time; it waits as long as it takes."""
        return vault_file.locked(self.path.with_name(f"{name}.lock"))

    def open_seal(self) -> aes_seal.AesSeal:
        """
        Raises:
            InvalidInput: there is no key, or it is invalid.
        """
        return aes_seal.AesSeal(self._key())

    def seal(self, plain: bytes, context: str) -> bytes:
        return self.open_seal().seal(plain, context)

    def unseal(self, sealed: bytes, context: str) -> bytes:
        return self.open_seal().unseal(sealed, context)

    def _key(self) -> bytes:
        """Made on first use, but never for a vault that was made with another."""
        create = not self.exists
        if self.written_key is not None:
            return vault_key.decoded(self.written_key, source="MAINSPRING_VAULT_KEY")
        if self.in_keyring:
            return vault_key.from_keyring(create=create)
        return vault_key.from_file(self.path.with_suffix(".key"), create=create)
