"""Encrypts the service's secrets: AES-256-GCM with a key derived from the vault's key."""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mainspring.core.errors import StoreCorrupt

_VERSION = b"\x01"
_NONCE_BYTES = 12  # AES-GCM's own size (NIST SP 800-38D)


class AesSeal:
    """A sealed value begins with a version and a nonce; the context is authenticated, so that a
    value sealed for one purpose cannot be opened for another."""

    def __init__(self, key: bytes) -> None:
        # a separate key, so that no sealed value can be opened as an entry of the vault's file
        own = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"mainspring service seal")
        self._cipher = AESGCM(own.derive(key))

    def seal(self, plain: bytes, context: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, plain, context.encode())

    def unseal(self, sealed: bytes, context: str) -> bytes:
        """
        Raises:
            StoreCorrupt: it was sealed with another key or for something else, or was changed.
        """
        version, nonce, content = (
            sealed[:1],
            sealed[1 : 1 + _NONCE_BYTES],
            sealed[1 + _NONCE_BYTES :],
        )
        try:
            if version != _VERSION:
                raise ValueError("another version")
            return self._cipher.decrypt(nonce, content, context.encode())
        except (InvalidTag, ValueError) as error:
            corrupt = StoreCorrupt("a stored secret does not open: another key, or it was changed")
            corrupt.add_note("MAINSPRING_VAULT_KEY, the keyring or the key file must be the one")
            corrupt.add_note("that the secret was stored with, the same on every machine")
            raise corrupt from error
