"""All detectors of unknown secrets in the order in which they are tried, including those for
wrapped and encoded tokens."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Protocol

import re2
from msgspec import Struct

from mainspring.capabilities.vault.passwords import PASSWORDS
from mainspring.capabilities.vault.secret_detector import (
    LINE_PREFIX,
    Detector,
    compile_pattern,
    redaction_label,
)
from mainspring.capabilities.vault.tokens import BEGINNINGS, PRIVATE_KEYS, START, TOKENS

_CHARACTERS = r"[A-Za-z0-9_.+/=-]"
_BREAK = rf"(?:\\?\r?\n|\\+n)[ \t]*(?:{LINE_PREFIX}[ \t]*)?"
_GROUP = (
    r"[CDI-Za-f][ACDEFGHQSTUVWXgijklmnwyz0123][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"
)
"""Three ASCII characters of text, in base64."""
_FULL_LINE = 60


class WrappedTokens(Struct, frozen=True):
    """Tokens that continue on the next line."""

    tokens: Sequence[Detector]
    kind = "wrapped_token"
    trigger = rf"(?:{BEGINNINGS}){_CHARACTERS}*{_BREAK}{_CHARACTERS}"
    _pattern = compile_pattern(
        rf"{START}((?:{BEGINNINGS}){_CHARACTERS}*)((?:{_BREAK}{_CHARACTERS}{{2,}})+)".encode()
    )
    _pieces = compile_pattern(rf"({_BREAK})({_CHARACTERS}+)".encode())

    def redacted(self, text: bytes) -> bytes:
        pieces: list[bytes] = []
        end = 0
        for match in self._pattern.finditer(text):
            begin, stop = match.span(1)
            size = self._continued(text, match)
            if begin >= end and size:
                pieces += (text[end:begin], redaction_label(self.kind))
                end = stop + size
        return b"".join((*pieces, text[end:])) if pieces else text

    def _continued(self, text: bytes, match: re2.Match[bytes]) -> int:
        """How many bytes of the next lines belong to the token."""
        joined, size = match.group(1), 0
        column = match.span(1)[1] - max(text.rfind(b"\n", 0, match.span(1)[1]), 0)
        for piece in self._pieces.finditer(match.group(2)):
            line_end, more = piece.group(1), piece.group(2)
            is_open = not self._is_token(joined)
            is_full = column >= _FULL_LINE and not more.isalpha()
            if not (is_open or is_full or line_end.startswith((b"\\\n", b"\\\r"))):
                break
            joined += more
            size = piece.span(2)[1]
            column = len(more)
        return size if self._is_token(joined) else 0

    def _is_token(self, text: bytes) -> bool:
        return any(token.redacted(text) != text for token in self.tokens)


class EncodedSecrets(Struct, frozen=True):
    """Base64 of text that contains a secret."""

    has_secret: Callable[[bytes], bool]
    kind = "encoded_secret"
    trigger = rf"(?:{_GROUP}){{4}}"
    _pattern = compile_pattern(
        r"(?:^|\\+[nrt]|\[[0-9;]*m|[^A-Za-z0-9+/_-])"
        rf"((?:{_GROUP}){{4,}}(?:{_BREAK}(?:{_GROUP})+)*[A-Za-z0-9+/_-]{{0,3}}={{0,2}})".encode()
    )
    _breaks = compile_pattern(rf"{_BREAK}".encode())

    def redacted(self, text: bytes) -> bytes:
        pieces: list[bytes] = []
        end = 0
        for match in self._pattern.finditer(text):
            begin, stop = match.span(1)
            if self.has_secret(_decode_base64(self._breaks.sub(b"", match.group(1)))):
                pieces += (text[end:begin], redaction_label(self.kind))
                end = stop
        return b"".join((*pieces, text[end:])) if pieces else text


def _decode_base64(encoded: bytes) -> bytes:
    standard = encoded.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    return b64decode(standard[: len(standard) - (len(standard) % 4 == 1)] + b"==")


class SecretDetector(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def trigger(self) -> str: ...
    def redacted(self, text: bytes) -> bytes: ...


def _has_secret(text: bytes) -> bool:
    return any(item.redacted(text) != text for item in (*PRIVATE_KEYS, *TOKENS, *PASSWORDS))


DETECTORS: tuple[SecretDetector, ...] = (
    *PRIVATE_KEYS,
    WrappedTokens(TOKENS),
    *TOKENS,
    EncodedSecrets(_has_secret),
    *PASSWORDS,
)
