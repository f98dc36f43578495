"""All detectors of unknown secrets in the order in which they are tried, including those for
wrapped and encoded tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Protocol

import re2
from msgspec import Struct

from mainspring.capabilities.vault.passwords import PASSWORDS
from mainspring.capabilities.vault.secret_detector import (
    LINE_PREFIX,
    Detector,
    LazyPattern,
    PatternSet,
    ScanBudget,
    compile_pattern,
    decode_base64,
    prefix_size,
    redact_matches,
    redaction_label,
)
from mainspring.capabilities.vault.tokens import BEGINNINGS, PRIVATE_KEYS, START, TOKENS

_CHARACTERS = r"[A-Za-z0-9_.+/=-]"
_BREAK = rf"(?:\\?\r?\n|\\+n)[ \t]*(?:{LINE_PREFIX}[ \t]*)?"
_GROUP = (
    r"[CDI-Za-f][ACDEFGHQSTUVWXgijklmnwyz0123][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"
)
"""Three ASCII characters of text, in base64."""
_FULL_LINE = 60  # characters: lines of PEM and base64 have 64 or 76


_MAX_WRAPPED_BYTES = 1_024
"""Of a token that continues on other lines: the longest have a few hundred."""
_WRAPPED_EFFORT = 12
"""What joining the lines of one token costs, in candidates of other kinds."""


class WrappedTokens(Struct, frozen=True):
    """Tokens that continue on the next line."""

    tokens: Sequence[Detector]
    kind = "wrapped_token"
    trigger = rf"(?:{BEGINNINGS}){_CHARACTERS}*{_BREAK}{_CHARACTERS}"
    pattern = compile_pattern(
        rf"{START}((?:{BEGINNINGS}){_CHARACTERS}*)((?:{_BREAK}{_CHARACTERS}{{2,}}){{1,4}})".encode()
    )
    _pieces = compile_pattern(rf"({_BREAK})({_CHARACTERS}+)".encode())

    def candidates(self, text: bytes) -> Iterator[tuple[int, int]]:
        return (match.span() for match in self.pattern.finditer(text))

    def redacted(self, text: bytes, budget: ScanBudget) -> bytes:
        def token_span(match: re2.Match[bytes]) -> tuple[int, int] | None:
            size = self._continued(text, match) if budget.take(_WRAPPED_EFFORT) else 0
            begin, stop = match.span(1)
            return (begin, stop + size) if size else None

        return redact_matches(text, self.pattern, budget, token_span, redaction_label(self.kind))

    def _continued(self, text: bytes, match: re2.Match[bytes]) -> int:
        """How many bytes of the next lines belong to the token."""
        joined, size = match.group(1), 0
        stop = match.span(1)[1]
        line_start = text.rfind(b"\n", max(0, stop - _MAX_WRAPPED_BYTES), stop)
        column = stop - max(line_start, 0)
        for piece in self._pieces.finditer(match.group(2)[:_MAX_WRAPPED_BYTES]):
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
        return any(_matches(self.tokens[at], text) for at in _possible_tokens(text[:_HEAD]))


_HEAD = 24
"""As many bytes as the longest beginning of a token has."""


@lru_cache(maxsize=1024)
def _possible_tokens(head: bytes) -> tuple[int, ...]:
    """The detectors of tokens whose trigger is in the first bytes of a text."""
    return tuple(_token_triggers()(head))


@cache
def _token_triggers() -> PatternSet:
    return PatternSet(token.trigger.encode() for token in TOKENS)


def _matches(detector: SecretDetector, text: bytes) -> bool:
    return detector.redacted(text, ScanBudget(len(text))) != text


_ENCODED_START = rb"\\+[nrt]|\[[0-9;]*m|[^A-Za-z0-9+/_-]"


class EncodedSecrets(Struct, frozen=True):
    """Base64 of text that contains a secret."""

    kind = "encoded_secret"
    trigger = rf"(?:{_GROUP}){{4}}"
    _before = compile_pattern(_ENCODED_START)
    pattern = compile_pattern(
        b"(?:^|"
        + _ENCODED_START
        + b")"
        + rf"(?:{_GROUP}){{4,}}(?:{_BREAK}(?:{_GROUP})+)*[A-Za-z0-9+/_-]{{0,3}}={{0,2}}".encode()
    )
    _breaks = compile_pattern(_BREAK.encode())

    def candidates(self, text: bytes) -> Iterator[tuple[int, int]]:
        return (match.span() for match in self.pattern.finditer(text))

    def redacted(self, text: bytes, budget: ScanBudget) -> bytes:
        def secret_span(match: re2.Match[bytes]) -> tuple[int, int] | None:
            start, stop = match.span()
            start += prefix_size(self._before, text, start)
            encoded = text[start:stop]
            if b"\n" in encoded or b"\\" in encoded:
                encoded = self._breaks.sub(b"", encoded)
            return (start, stop) if _has_secret(decode_base64(encoded), budget) else None

        return redact_matches(text, self.pattern, budget, secret_span, redaction_label(self.kind))


class SecretDetector(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def trigger(self) -> str: ...
    @property
    def pattern(self) -> LazyPattern: ...
    def candidates(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where a secret may be: whatever `redacted` would examine."""
        ...

    def redacted(self, text: bytes, budget: ScanBudget) -> bytes: ...


_PLAIN: tuple[Detector, ...] = (*PRIVATE_KEYS, *TOKENS, *PASSWORDS)


@cache
def _plain_triggers() -> PatternSet:
    return PatternSet(item.trigger.encode() for item in _PLAIN)


def _has_secret(text: bytes, budget: ScanBudget) -> bool:
    return any(_PLAIN[at].redacted(text, budget) != text for at in _plain_triggers()(text))


DETECTORS: tuple[SecretDetector, ...] = (
    *PRIVATE_KEYS,
    WrappedTokens(TOKENS),
    *TOKENS,
    EncodedSecrets(),
    *PASSWORDS,
)
