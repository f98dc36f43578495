"""Compares names of files as the most lenient file system would."""

from __future__ import annotations

import unicodedata

_INVISIBLE = "Cf"  # the Unicode category that HFS+ ignores when it compares names


def fold_name(name: str) -> str:
    """A key that is equal for names that some file system treats as the same."""
    if not name.isascii():
        plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
        name = "".join(item for item in plain if unicodedata.category(item) != _INVISIBLE)
    return name.lower().rstrip(". ")
