"""The forms in which a known secret may appear: plain, escaped, encoded. Pure."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import msgspec

SHORTEST_SECRET = 8
"""Shorter values may be ordinary words: redacting them would garble text."""


def encoded_forms(value: str) -> tuple[bytes, ...]:
    """All encodings of a value that are long enough to be recognised, the longest first."""
    forms = {form for form in _forms(value.strip()) if len(form) >= SHORTEST_SECRET}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _forms(value: str) -> Iterator[bytes]:
    if len(value) < SHORTEST_SECRET:
        return
    plain = value.encode(errors="surrogatepass")
    yield plain
    yield msgspec.json.encode(plain.decode(errors="replace"))[1:-1]
    yield plain.hex().encode()
    yield plain.hex().upper().encode()
    for quoted in (quote(plain, safe=""), quote(plain), quote_plus(plain)):
        yield quoted.encode()
        yield _lower_escapes(quoted).encode()
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            yield aligned_part(encode(bytes(before) + plain), before, len(plain), 6)


def _lower_escapes(quoted: str) -> str:
    first, *escapes = quoted.split("%")
    return "%".join([first, *(item[:2].lower() + item[2:] for item in escapes)])


def aligned_part(encoded: bytes, before: int, size: int, bits: int) -> bytes:
    """The part of base64 (6 bits per character) or base32 (5) that depends only on the `size` bytes
    after the first `before`, whatever surrounds them."""
    return encoded[-(-before * 8 // bits) : (before + size) * 8 // bits]
