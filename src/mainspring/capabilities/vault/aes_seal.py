"""The seal of what the service keeps secret: AES-256-GCM with a key made of the vault's."""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mainspring.core.errors import StoreCorrupt

_VERSION = b"\x01"
_NONCE_BYTES = 12


class AesSeal:
    """What it seals begins with a version and a nonce; the context is authenticated with it, so
    that what was sealed for one thing does not open as another's."""

    def __init__(self, key: bytes) -> None:
        # a key of its own: what is sealed here never opens as an entry of the vault's file
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
            refused = StoreCorrupt("a stored secret does not open: another key, or it was changed")
            refused.add_note("MAINSPRING_VAULT_KEY, the keyring or the key file must be the one")
            refused.add_note("that the secret was stored with, the same on every machine")
            raise refused from error
