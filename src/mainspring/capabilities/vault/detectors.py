"""Secrets that nobody told us about: every detector, in the order in which they are tried."""

from __future__ import annotations

from typing import Protocol

from mainspring.capabilities.vault.disguises import EncodedSecrets, WrappedTokens
from mainspring.capabilities.vault.passwords import PASSWORDS
from mainspring.capabilities.vault.private_keys import PRIVATE_KEYS
from mainspring.capabilities.vault.tokens import TOKENS


class AnyDetector(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def trigger(self) -> str: ...
    def redacted(self, text: bytes) -> bytes: ...


def _has_secret(text: bytes) -> bool:
    return any(each.redacted(text) != text for each in (*PRIVATE_KEYS, *TOKENS, *PASSWORDS))


DETECTORS: tuple[AnyDetector, ...] = (
    *PRIVATE_KEYS,
    WrappedTokens(TOKENS),
    *TOKENS,
    EncodedSecrets(_has_secret),
    *PASSWORDS,
)
