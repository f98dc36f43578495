"""Redacts everything before it is written to the log: known secrets, and text that looks like one.

Content without secrets costs one pass of each of two automata. In JSON, whole strings are replaced
by strings and numbers by numbers, so it keeps its structure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from mainspring.capabilities.vault.assignments import (
    SHORTEST_PASSWORD,
    is_assigned_secret,
    is_foreign_secret,
    is_login,
    is_passphrase,
    names_foreign_secret,
    names_secret,
)
from mainspring.capabilities.vault.detector_registry import DETECTORS
from mainspring.capabilities.vault.encoded_forms import encoded_forms
from mainspring.capabilities.vault.passwords import ASSIGNED
from mainspring.capabilities.vault.secret_detector import (
    PatternSet,
    ScanBudget,
    any_literal,
    compile_pattern,
    redaction_label,
)
from mainspring.capabilities.vault.tokens import JSON_KEY, NUMBER_KEY

_KNOWN_PATTERN = 0
"""The number for known secrets; the numbers of the detectors follow."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
"""A string of valid JSON: no part of it can match in two ways."""
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_PREFIX_BYTES = 12
"""A known secret is searched by this prefix; the whole is compared only where it matches."""
_ESCAPE = b"\\u"
"""In JSON, a name in another alphabet may be written with these."""
_NUMBER_LABEL = redaction_label(NUMBER_KEY.kind)
_MAX_PASSES = 8
"""After one redaction, the text next to it may also look like a secret, and so may what is left of
a JSON member: the short rest of a long value behind `password`."""
_LONGEST_NAME = 64
"""Bytes of a JSON member's name that may say that its value is secret."""
_SECRET_HEADERS = (b"cookie", b"set-cookie", b"authorization", b"proxy-authorization")
"""Headers whose values are secrets."""
_JSON_STARTS = (b"{", b"[", b'"')


class Scrubber:
    """A `Scrub`. Replaces each known value, in any encoding, by `[NAME]`, and anything that only
    looks like a secret by `[redacted:KIND]`."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._names = {value: name for name, value in secrets.items()}
        self._redactor: _Redactor | None = None

    def __call__(self, content: bytes) -> bytes:
        if self._redactor is None:
            self._redactor = _Redactor([(name, value) for value, name in self._names.items()])
        clean = self._redactor.scrub(content)
        for _ in range(_MAX_PASSES):
            if clean == content:
                break
            content, clean = clean, self._redactor.scrub(clean)
        return clean

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Add known secrets."""
        for name, value in secrets.items():
            if value not in self._names:
                self._names[value] = name
                self._redactor = None

    def passages(self, boundaries: str) -> tuple[str, ...]:
        """See `multi_word_secrets`."""
        return multi_word_secrets({name: value for value, name in self._names.items()}, boundaries)

    def redacted(self, text: str) -> str:
        return self(text.encode(errors="replace")).decode(errors="replace")


def multi_word_secrets(secrets: Mapping[str, str], boundaries: str) -> tuple[str, ...]:
    """All encodings of values that contain one of `boundaries`: a redactor that works word by word
    must know these as a whole."""
    forms = {
        form.decode(errors="replace") for value in secrets.values() for form in encoded_forms(value)
    }
    return tuple(sorted(form for form in forms if any(item in form for item in boundaries)))


@cache
def _detector_triggers() -> PatternSet:
    """Built once per process: it takes 7 ms, and every run of a served session has a scrubber."""
    return PatternSet(item.trigger.encode() for item in DETECTORS)


class _Redactor:
    def __init__(self, secrets: Sequence[tuple[str, str]]) -> None:
        names = [f"[{name}]".encode() for name, _ in secrets]
        labels = b" ".join((*names, *(redaction_label(item.kind) for item in DETECTORS)))
        self._labels = {
            form: f"[{name}]".encode()
            for name, value in secrets
            for form in encoded_forms(value)
            if form not in labels  # a label is never redacted as a secret
        }
        self._known_values = _KnownValues(self._labels)
        escaped = [
            msgspec.json.encode(form.decode(errors="replace"))[1:-1] for form in self._labels
        ]
        self._known_prefixes = compile_pattern(any_literal(_prefixes([*self._labels, *escaped])))
        self._triggers = _detector_triggers()

    def _hints(self, content: bytes) -> list[int]:
        """Numbers of the detectors that may match; `_KNOWN_PATTERN` for known secrets."""
        hints = [number + 1 for number in self._triggers(content)]
        if self._labels and self._known_prefixes.search(content) is not None:
            hints.append(_KNOWN_PATTERN)
        return hints

    def scrub(self, content: bytes) -> bytes:
        if not self._hints(content) and _ESCAPE not in content:
            return content
        budget = ScanBudget(len(content))
        if not (content.startswith(_JSON_STARTS) and _is_json(content)):
            return self._scrub_text(content, budget)
        clean = self._scrub_json(content, budget)
        return self._scrub_json(content, budget) if budget.is_spent else clean

    def _scrub_text(self, text: bytes, budget: ScanBudget) -> bytes:
        for _ in range(_MAX_PASSES):
            before = text
            for hint in sorted(self._hints(text)):
                is_detector = hint != _KNOWN_PATTERN
                redacted = DETECTORS[hint - 1].redacted(text, budget) if is_detector else None
                text = self._labelled(text) if redacted is None else redacted
            if text == before:
                break
        return text

    def _labelled(self, text: bytes) -> bytes:
        pieces: list[bytes] = []
        end = 0
        for begin, form in self._known_values.find_spans(text):
            pieces += (text[end:begin], self._labels[form])
            end = begin + len(form)
        return b"".join((*pieces, text[end:]))

    def _scrub_json(self, content: bytes, budget: ScanBudget) -> bytes:
        content = JSON_KEY.redacted(content, budget)
        content = NUMBER_KEY.redacted(content, budget).replace(_NUMBER_LABEL, b"[]")
        strings = _strings(content)
        suspects = self._suspects(strings)
        replaced = [
            (strings.starts[at], strings.ends[at], clean)
            for at in sorted(suspects)
            if (clean := self._scrub_string(strings, at, budget)) is not None
        ]
        replaced += self._numbers(content, strings)
        pieces: list[bytes] = []
        end = 0
        for start, stop, clean in sorted(replaced):
            pieces += (content[end:start], clean)
            end = stop
        return b"".join((*pieces, content[end:]))

    def _suspects(self, strings: _Strings) -> set[int]:
        """The strings that must be examined one by one: all others together show no candidate."""
        joined = b"\n".join(strings.texts)
        offsets: list[int] = []
        offset = 0
        for text in strings.texts:
            offsets.append(offset)
            offset += len(text) + 1
        suspects = {at for at, name in strings.names.items() if _is_telling(strings.texts[name])}
        for hint in self._hints(joined):
            is_known = hint == _KNOWN_PATTERN
            spans = (
                (
                    (begin, begin + len(form))
                    for begin, form in self._known_values.find_spans(joined)
                )
                if is_known
                else DETECTORS[hint - 1].candidates(joined)
            )
            for start, stop in spans:
                first = bisect_right(offsets, start) - 1
                last = bisect_right(offsets, max(start, stop - 1)) - 1
                suspects.update(range(first, last + 1))
        return suspects

    def _numbers(self, content: bytes, strings: _Strings) -> Iterator[tuple[int, int, bytes]]:
        """Numbers that are known secrets, outside of strings."""
        for form in self._labels:
            at = content.find(form) if _NUMBER.fullmatch(form) else -1
            while at >= 0:
                before = bisect_right(strings.starts, at) - 1
                is_outside = before < 0 or strings.ends[before] <= at
                stop = at + len(form)
                around = content[at - 1 : at] + content[stop : stop + 1]
                if is_outside and not _NUMBER.search(around) and not around.strip(b",:[]{} \r\n\t"):
                    yield at, stop, b"0"
                at = content.find(form, stop)

    def _scrub_string(self, strings: _Strings, at: int, budget: ScanBudget) -> bytes | None:
        """What replaces a string; None if it stays."""
        text = strings.texts[at]
        if len(text) < SHORTEST_PASSWORD - 1:
            return None
        name = strings.texts[strings.names[at]] if at in strings.names else b""
        if _is_assigned(name, text):
            return msgspec.json.encode(self._labels.get(text, redaction_label(ASSIGNED)).decode())
        header = name + b": " if name.lower() in _SECRET_HEADERS else b""
        clean = self._scrub_text(header + text, budget).removeprefix(header)
        return None if clean == text else msgspec.json.encode(clean.decode(errors="replace"))


class _Strings(NamedTuple):
    """All strings of a JSON text, names too."""

    starts: list[int]
    ends: list[int]
    texts: list[bytes]
    names: dict[int, int]
    """By the number of a value's string: the number of its name's string."""


def _strings(content: bytes) -> _Strings:
    spans = [match.span() for match in _STRING.finditer(content)]
    encoded = b"[" + b",".join(content[start:stop] for start, stop in spans) + b"]"
    texts = [text.encode() for text in msgspec.json.decode(encoded, type=list[str])]
    names = {
        at: at - 1
        for at in range(1, len(spans))
        if content[spans[at - 1][1] : spans[at][0]].strip() == b":"
    }
    return _Strings([start for start, _ in spans], [stop for _, stop in spans], texts, names)


def _is_telling(name: bytes) -> bool:
    return len(name) < _LONGEST_NAME and (
        names_secret(name)
        or names_foreign_secret(name)
        or name == b"auth"
        or name.lower() in _SECRET_HEADERS
    )


class _KnownValues:
    """Finds texts by their prefixes: an automaton of the whole texts would be too large for a dozen
    tokens."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._by_start: dict[bytes, list[bytes]] = {}
        for text in sorted(texts, key=len, reverse=True):
            self._by_start.setdefault(text[:_PREFIX_BYTES], []).append(text)
        self._sizes = sorted({len(start) for start in self._by_start}, reverse=True)
        self._starts = compile_pattern(any_literal(self._by_start))

    def find_spans(self, content: bytes) -> Generator[tuple[int, bytes]]:
        """Each position with the longest text that begins there; overlapping matches are
        skipped."""
        at = 0
        while (match := self._starts.search(content, at)) is not None:
            begin = match.span()[0]
            text = self._at(content, begin)
            at = begin + (1 if text is None else len(text))
            if text is not None:
                yield begin, text

    def _at(self, content: bytes, begin: int) -> bytes | None:
        starts = (content[begin : begin + size] for size in self._sizes)
        texts = (text for start in starts for text in self._by_start.get(start, ()))
        return next((text for text in texts if content.startswith(text, begin)), None)


def _prefixes(texts: Iterable[bytes]) -> list[bytes]:
    return sorted({text[:_PREFIX_BYTES] for text in texts})


def _is_assigned(name: bytes, value: bytes) -> bool:
    if b" " in value:
        return names_secret(name) and is_passphrase(value)
    return (
        is_assigned_secret(name, value, is_quoted=True, ends_line=False)
        or is_login(name, value)
        or is_foreign_secret(name, value)
    )


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
