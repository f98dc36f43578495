"""Finds known values in bytes, in any encoding.

The bytes are decoded as their reader would decode them: percent, JSON and C escapes, HTML entities,
quoted-printable, UTF-16 (without its zero bytes), each of them repeatedly and in any combination.
Base64, base32 and hexadecimal are compared in encoded form, at every alignment. White space is
ignored, so a value that is wrapped over lines is found; an empty line ends it.
"""

from __future__ import annotations

import json
from base64 import b32encode, b32hexencode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import chain
from urllib.parse import quote

import msgspec

from mainspring.capabilities.vault.encoded_forms import SHORTEST_SECRET, aligned_part, encoded_forms
from mainspring.capabilities.vault.secret_detector import any_literal, compile_pattern
from mainspring.capabilities.vault.traced_decoding import (
    ESCAPES,
    IS_QUOTED_PRINTABLE,
    QUOTED_PRINTABLE,
    DecodeStep,
    DecodingStep,
    DeleteStep,
    MapStep,
    apply_steps,
    original_span,
)

_SHORTEST_DECODED = 6  # bytes; shorter pieces occur by chance in encoded text
_LONGEST = 4096
"""Longer values are searched for in parts."""
_HEAD = 12  # bytes that must match before a whole value is compared
_WINDOW = 512  # bytes at the end of a stream that are decoded first; then 4 times more
_MOST_HELD = 16 << 10  # bytes at the end of a stream that are decoded at most
_MARGIN = 64  # bytes that the decoded end must have beyond the longest value


@dataclass(frozen=True, slots=True)
class ValueMatches:
    spans: tuple[tuple[int, int, int], ...]
    """Begin and end of each value, and its number; sorted, without overlaps."""
    open: int
    """Where a value may begin that is not complete yet; the end of the content if there is none."""


_STANDARD = bytes.maketrans(b"-_", b"+/")
_WHITE = b" \t\n\v\f"
_LINES = MapStep(lambda text: text.replace(b"\n\n", b"\x01\x01"))
_TEXT: tuple[DecodingStep, ...] = (DeleteStep(_WHITE + b"+="), MapStep(bytes.lower))
_BASE64: tuple[DecodingStep, ...] = (
    DeleteStep(_WHITE),
    MapStep(lambda text: text.translate(_STANDARD)),
)
_HEX: tuple[DecodingStep, ...] = (MapStep(bytes.lower), DeleteStep(_WHITE + b":;,-", b"0x"))


class KnownValues:
    """A search for values, each identified by its number."""

    def __init__(self, values: Sequence[str]) -> None:
        stripped = [value.strip() or value for value in values]
        self._readings = (
            _DecodedSearch((), [_EncodingSearch((), _encoded_values(stripped, _plain_forms))]),
            _DecodedSearch.decoded(DecodeStep(ESCAPES), stripped),
        )
        self._quoted_printable = _DecodedSearch.decoded(DecodeStep(QUOTED_PRINTABLE), stripped)

    def __call__(self, content: bytes) -> ValueMatches:
        readings = self._readings
        if IS_QUOTED_PRINTABLE.search(content) is not None:
            readings += (self._quoted_printable,)
        all_spans = sorted(chain.from_iterable(reading.find_spans(content) for reading in readings))
        spans: list[tuple[int, int, int]] = []
        for begin, end, number in all_spans:
            if spans and begin < spans[-1][1]:
                first, last, value_at = spans[-1]
                spans[-1] = (first, max(last, end), value_at)
            else:
                spans.append((begin, end, number))
        held_from = min(reading.open(content) for reading in readings)
        for begin, end, _ in reversed(spans):
            if end > held_from > begin:
                held_from = begin
        return ValueMatches(tuple(spans), held_from)


class _DecodedSearch:
    """Decodes content in some steps, then searches it in several encodings."""

    def __init__(
        self, steps: tuple[DecodingStep, ...], searches: Sequence[_EncodingSearch]
    ) -> None:
        self._steps = steps
        self._searches = searches
        self._longest = max(view.longest for view in searches)

    @classmethod
    def decoded(cls, step: DecodeStep, values: Sequence[str]) -> _DecodedSearch:
        steps = (DeleteStep(b"\0\r"), step, _LINES)
        as_text = partial(_text_forms, (*steps, *_TEXT))
        return cls(
            steps,
            (
                _EncodingSearch(_TEXT, _encoded_values(values, as_text)),
                _EncodingSearch(_BASE64, _encoded_values(values, _base64_forms)),
                _EncodingSearch(_HEX, _encoded_values(values, _hex_forms)),
            ),
        )

    def find_spans(self, content: bytes) -> Iterator[tuple[int, int, int]]:
        text = content
        for step in self._steps:
            text = step.apply(text)
        for view in self._searches:
            hits = view.find_spans(text)
            if hits:
                _, layers = apply_steps(self._steps, content, is_cut=False)
                yield from ((*original_span(layers, begin, end), item) for begin, end, item in hits)

    def open(self, content: bytes) -> int:
        """Where a value may begin that continues after the content."""
        size = _WINDOW
        while True:
            skipped = max(0, len(content) - size)
            text, layers = apply_steps(self._steps, content[skipped:], is_cut=True)
            if not skipped or size >= _MOST_HELD or len(text) > self._longest + _MARGIN:
                begin = min(view.open(text) for view in self._searches)
                return skipped + original_span(layers, begin, 0)[0]
            size *= 4


class _EncodingSearch:
    """Searches text, after some steps, for the values in one encoding."""

    def __init__(self, steps: tuple[DecodingStep, ...], values: dict[bytes, int]) -> None:
        self._steps = steps
        self._written = values
        self._by_head: dict[bytes, list[bytes]] = {}
        for form in sorted(values, key=len, reverse=True):
            self._by_head.setdefault(form[:_HEAD], []).append(form)
        self._sizes = sorted({len(head) for head in self._by_head})
        self._heads = compile_pattern(any_literal(self._by_head))
        self._by_start: dict[bytes, list[bytes]] = {}
        for form in values:
            self._by_start.setdefault(form[:1], []).append(form)
            self._by_start.setdefault(form[:2], []).append(form)
        self.longest = max(map(len, values), default=1)

    def find_spans(self, text: bytes) -> list[tuple[int, int, int]]:
        decoded = text
        for step in self._steps:
            decoded = step.apply(decoded)
        hits = list(self._hits(decoded))
        if not hits:
            return []
        _, layers = apply_steps(self._steps, text, is_cut=False)
        spans = ((original_span(layers, begin, begin + len(form)), form) for begin, form in hits)
        return [(*span, self._written[form]) for span, form in spans]

    def open(self, text: bytes) -> int:
        """Where a value may begin that continues after the text."""
        decoded, layers = apply_steps(self._steps, text, is_cut=True)
        begin = len(decoded)
        for at in range(max(0, len(decoded) - self.longest + 1), len(decoded)):
            forms = self._by_start.get(decoded[at : at + 2])
            if forms is not None and any(form.startswith(decoded[at:]) for form in forms):
                begin = at
                break
        return original_span(layers, begin, 0)[0]

    def _hits(self, text: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while (match := self._heads.search(text, at)) is not None:
            begin = match.span()[0]
            heads = (text[begin : begin + size] for size in self._sizes)
            forms = chain.from_iterable(self._by_head.get(head, ()) for head in heads)
            whole = [form for form in forms if text.startswith(form, begin)]
            if whole:
                yield begin, max(whole, key=len)
            at = begin + 1


def _encoded_values(
    values: Sequence[str], ways: Callable[[str], Iterable[bytes]]
) -> dict[bytes, int]:
    """The encoded forms of the values, with the number of each value."""
    encoded: dict[bytes, int] = {}
    for number, value in enumerate(values):
        for form in ways(value):
            for part in _parts(form):
                encoded.setdefault(part, number)
    return encoded


def _parts(form: bytes) -> Iterator[bytes]:
    yield form[:_LONGEST]
    for begin in range(_LONGEST, len(form), _LONGEST):
        yield form[min(begin, len(form) - _LONGEST) :][:_LONGEST]


def _plain_forms(value: str) -> Iterator[bytes]:
    yield value.encode(errors="surrogatepass")
    yield from encoded_forms(value)


def _text_encodings(value: str) -> Iterator[bytes]:
    """The value in the usual character encodings."""
    if len(value) < SHORTEST_SECRET:
        return
    for charset in ("utf-8", "utf-16-le", "utf-16-be"):
        yield value.encode(charset, "surrogatepass")
    yield value.encode("latin-1", "replace")


def _text_forms(steps: Iterable[DecodingStep], value: str) -> Iterator[bytes]:
    wide = [value.encode(charset, "surrogatepass") for charset in ("utf-32-le", "utf-32-be")]
    for content in (*_text_encodings(value), *_text_encodings(value[::-1]), *wide):
        for step in steps:
            content = step.apply(content)
        content = content.rstrip(b"\\%&")  # it could begin an escape
        if len(content) >= _SHORTEST_DECODED:
            yield content
    for content in _text_encodings(value):
        yield b",".join(b"%d" % byte for byte in content)
        for encode in (b32encode, b32hexencode):
            for before in range(5):
                yield aligned_part(encode(bytes(before) + content), before, len(content), 5).lower()


def _base64_forms(value: str) -> Iterator[bytes]:
    for content in (*_text_encodings(value), *_nested_forms(value)):
        for before in range(3):
            yield aligned_part(b64encode(bytes(before) + content), before, len(content), 6)


def _hex_forms(value: str) -> Iterator[bytes]:
    for content in (*_text_encodings(value), *_nested_forms(value)):
        yield content.hex().encode()


def _nested_forms(value: str) -> Iterator[bytes]:
    """The value in an inner encoding, which is then encoded once more."""
    if len(value) < SHORTEST_SECRET:
        return
    content = value.encode(errors="surrogatepass")
    escaped = msgspec.json.encode(content.decode(errors="replace"))[1:-1]
    yield from (escaped, escaped.replace(b"/", b"\\/"), escape(value).encode(errors="replace"))
    yield json.dumps(value)[1:-1].encode()
    yield from (quote(content, safe="").encode(), b"".join(b"%%%02X" % byte for byte in content))
    yield from (content.hex().encode(), content.hex().upper().encode(), b32encode(content))
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            yield aligned_part(encode(bytes(before) + content), before, len(content), 6)
