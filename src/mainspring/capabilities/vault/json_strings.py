"""The strings of a JSON text: found, decoded, replaced. Everything between them stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

_STRING = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")')
"""A string of valid JSON: no part of it can match in two ways."""
_KEY_TYPE = b"kty"
_PRIVATE_MEMBERS = frozenset((b"d", b"k", b"p", b"q", b"dp", b"dq", b"qi"))
"""The members of a JSON Web Key that only its owner may know (RFC 7518)."""
_SHORTEST_MEMBER = 20  # characters: 128 bits have 22
_KEY_MEMBER = re.compile(rb"[A-Za-z0-9_-]*")


class JsonStrings:
    """All strings of a valid JSON text, names too."""

    def __init__(self, content: bytes) -> None:
        parts = _STRING.split(content)
        self._between = parts[::2]
        """What precedes each string, and what follows the last one."""
        self._encoded = parts[1::2]
        array = b"[" + b",".join(self._encoded) + b"]"
        self.texts = [text.encode() for text in msgspec.json.decode(array, type=list[str])]

    def names(self) -> dict[int, int]:
        """By the number of a value's string: the number of its name's string."""
        return {at: at - 1 for at in range(1, len(self.texts)) if self._between[at].strip() == b":"}

    def key_values(self, names: Mapping[int, int]) -> Iterator[int]:
        """The private members of JSON Web Keys."""
        if _KEY_TYPE not in self.texts:
            return
        members: list[int] = []
        is_key = False
        for at, text in enumerate(self.texts):
            if b"{" in self._between[at] or b"}" in self._between[at]:
                yield from members if is_key else ()
                members, is_key = [], False
            name = self.texts[names[at]] if at in names else b""
            is_key = is_key or name == _KEY_TYPE
            if name in _PRIVATE_MEMBERS and len(text) >= _SHORTEST_MEMBER:
                members += [at] if _KEY_MEMBER.fullmatch(text) else []
        yield from members if is_key else ()

    def groups(self, size: int) -> Iterator[Sequence[int]]:
        """The numbers of all strings, in groups of strings that have this size together."""
        group: list[int] = []
        left = size
        for at, text in enumerate(self.texts):
            group.append(at)
            left -= len(text)
            if left <= 0:
                yield group
                group, left = [], size
        yield group

    def replace(self, at: int, text: bytes) -> None:
        self._encoded[at] = msgspec.json.encode(text.decode(errors="replace"))

    def replace_numbers(self, form: bytes, pattern: re.Pattern[bytes]) -> None:
        """Set the numbers outside of strings that match to 0. `form` is in each of them."""
        for at, between in enumerate(self._between):
            if form in between:
                self._between[at] = pattern.sub(b"0", between)

    def joined(self) -> bytes:
        parts = [b""] * (2 * len(self._encoded) + 1)
        parts[::2] = self._between
        parts[1::2] = self._encoded
        return b"".join(parts)
