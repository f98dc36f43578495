"""Decodes text step by step, and maps each decoded byte to its position in the original."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html.entities import html5
from typing import TypeAlias

_DEPTH = 5
"""How many times text may be encoded."""
_LONGEST_ESCAPE = 64  # bytes of one escape sequence in any of the encodings

_ESCAPE = (
    rb"%(?:25)*(?P<byte>[0-9a-fA-F]{2})"
    rb"|\\\\*u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\+u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\\\*(?:u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8})|u\{0{0,8}(?P<u>[0-9a-fA-F]{1,6})\})"
    rb"|\\\\*x(?P<x>[0-9a-fA-F]{2})"
    rb"|\\\\*(?P<octal>[0-3][0-7]{2})"
    rb"|\\\\*(?P<blank>[nrtfv])"
    rb"|\\\\*(?P<itself>[^\\]|\Z)"
    rb"|&(?:amp;)*#0{0,8}(?P<decimal>[0-9]{1,7});?"
    rb"|&(?:amp;)*#[xX]0{0,8}(?P<hex>[0-9a-fA-F]{1,6});?"
    rb"|&(?:amp;)*(?P<entity>[A-Za-z][A-Za-z0-9]{1,31};)"
    rb"|=\n"
)
ESCAPES = re.compile(_ESCAPE)
QUOTED_PRINTABLE = re.compile(rb"=(?P<byte>[0-9A-F]{2})|" + _ESCAPE.replace(b"<byte>", b"<pct>"))
IS_QUOTED_PRINTABLE = re.compile(rb"=[0-9A-F]{2}")
_PARTIAL = re.compile(
    rb"(?:%(?:25)*[0-9a-fA-F]?"
    rb"|(?:\\+u[dD][89abAB][0-9a-fA-F]{2})?\\+(?:[uUx][{0-9a-fA-F]{0,9}|[0-3][0-7]?)?"
    rb"|&(?:amp;)*(?:#?[xX]?[0-9a-fA-F]{0,15}|[A-Za-z][A-Za-z0-9]{0,31})"
    rb"|=[0-9A-F]?)\Z"
)
"""An escape that is not complete yet."""
_BASES = {
    **{name: 16 for name in ("high", "low", "u4", "u8", "u", "x", "hex", "byte", "pct")},
    "octal": 8,
    "decimal": 10,
}
_BYTES = ("byte", "pct", "x", "octal")


class OffsetMap:
    """Maps positions in a decoded text to positions in the text before."""

    def __init__(self) -> None:
        self._output_offsets: list[int] = [0]
        self._input_offsets: list[int] = [0]
        self._is_copy: list[bool] = [True]

    def replaced(self, size: int, length: int, begin: int, end: int) -> None:
        """After `size` bytes, the next `length` bytes were made from `begin` to `end`."""
        self._output_offsets += (size, size + length)
        self._input_offsets += (begin, end)
        self._is_copy += (False, True)

    def begin(self, at: int) -> int:
        part = bisect_right(self._output_offsets, at) - 1
        inside = at - self._output_offsets[part] if self._is_copy[part] else 0
        return self._input_offsets[part] + inside

    def end(self, at: int) -> int:
        """The end, in the text before, of the byte before `at`."""
        part = bisect_right(self._output_offsets, at - 1) - 1
        if self._is_copy[part]:
            return self._input_offsets[part] + at - self._output_offsets[part]
        return self._input_offsets[part + 1]


DecodingStep: TypeAlias = "DeleteStep | DecodeStep | MapStep"
"""`apply` is a faster `traced` without the map. `is_cut`: the text may continue, so an incomplete
escape at its end is left out."""


@dataclass(frozen=True, slots=True)
class MapStep:
    """Maps byte for byte."""

    apply: Callable[[bytes], bytes]

    def traced(self, text: bytes, *, is_cut: bool) -> tuple[bytes, list[OffsetMap]]:
        return self.apply(text), []


class DeleteStep:
    """Deletes some bytes and a word."""

    def __init__(self, unwanted: bytes, word: bytes = b"") -> None:
        self._unwanted, self._word = unwanted, word
        words = b"|" + re.escape(word) if word else b""
        self._pattern = re.compile(b"[" + re.escape(unwanted) + b"]" + words)

    def apply(self, text: bytes) -> bytes:
        remainder = text.replace(self._word, b"") if self._word else text
        return remainder.translate(None, self._unwanted)

    def traced(self, text: bytes, *, is_cut: bool) -> tuple[bytes, list[OffsetMap]]:
        if is_cut and self._word:
            text = text.removesuffix(self._word[:1])
        decoded, layer = _replace_traced(text, self._pattern, lambda _: b"")
        return decoded, [layer]


class DecodeStep:
    """Decodes escapes until none is left."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern

    def apply(self, text: bytes) -> bytes:
        for _ in range(_DEPTH):
            before, text = text, self._pattern.sub(_character, text)
            if text == before:
                break
        return text

    def traced(self, text: bytes, *, is_cut: bool) -> tuple[bytes, list[OffsetMap]]:
        layers: list[OffsetMap] = []
        before = None
        while text != before and len(layers) < _DEPTH:
            before = _without_partial(text) if is_cut else text
            text, layer = _replace_traced(before, self._pattern, _character)
            layers.append(layer)
        return text, layers


def _without_partial(text: bytes) -> bytes:
    tail = text[-_LONGEST_ESCAPE:]
    partial = _PARTIAL.search(tail)
    return text if partial is None else text[: len(text) - len(tail) + partial.start()]


def _replace_traced(
    text: bytes, pattern: re.Pattern[bytes], made_of: Callable[[re.Match[bytes]], bytes]
) -> tuple[bytes, OffsetMap]:
    layer = OffsetMap()
    output = bytearray()
    end = 0
    for match in pattern.finditer(text):
        output += text[end : match.start()]
        new = made_of(match)
        layer.replaced(len(output), len(new), *match.span())
        output += new
        end = match.end()
    return bytes(output + text[end:]), layer


def _character(match: re.Match[bytes]) -> bytes:
    kind = match.lastgroup
    if kind is None:
        return b""
    text = match[kind]
    if kind in _BASES:
        code = int(text, _BASES[kind])
        if kind in _BYTES:
            return bytes((code,))
        if kind == "low":
            code += 0x10000 - 0xDC00 + ((int(match["high"], 16) - 0xD800) << 10)
        return chr(code).encode(errors="surrogatepass") if code < 0x110000 else b"?"
    if kind == "entity":
        character = html5.get(text.decode())
        return match[0] if character is None else character.encode(errors="surrogatepass")
    return b"\n" if kind == "blank" else text


def apply_steps(
    steps: Iterable[DecodingStep], content: bytes, *, is_cut: bool
) -> tuple[bytes, list[OffsetMap]]:
    layers: list[OffsetMap] = []
    for step in steps:
        content, offset_maps = step.traced(content, is_cut=is_cut)
        layers += offset_maps
    return content, layers


def original_span(layers: Sequence[OffsetMap], begin: int, end: int) -> tuple[int, int]:
    for layer in reversed(layers):
        begin, end = layer.begin(begin), layer.end(end)
    return begin, end
