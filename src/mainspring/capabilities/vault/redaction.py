"""Redacts everything before it is written to the log: known secrets, and text that looks like one.

Content without secrets costs one pass of each of two automata. In JSON, whole strings are replaced
by strings and numbers by numbers, so it keeps its structure.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cache

import msgspec

from mainspring.capabilities.vault.assignments import (
    SHORTEST_PASSWORD,
    is_assigned_secret,
    is_login,
    is_passphrase,
    names_secret,
)
from mainspring.capabilities.vault.detector_registry import DETECTORS
from mainspring.capabilities.vault.encoded_forms import encoded_forms
from mainspring.capabilities.vault.passwords import ASSIGNED
from mainspring.capabilities.vault.secret_detector import (
    PatternSet,
    any_literal,
    compile_pattern,
    redaction_label,
)

_KNOWN_PATTERN = 0
"""The number for known secrets; the numbers of the detectors follow."""
_TOKEN = compile_pattern(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*|[:,{}\[\]]')
_PREFIX_BYTES = 12
"""A known secret is searched by this prefix; the whole is compared only where it matches."""
_MAX_PASSES = 8
"""After one redaction, the text next to it may also look like a secret."""
_SECRET_HEADERS = (b'"cookie"', b'"set-cookie"', b'"authorization"', b'"proxy-authorization"')
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
        return self._redactor.scrub(content)

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Add known secrets."""
        for name, value in secrets.items():
            if value not in self._names:
                self._names[value] = name
                self._redactor = None

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
        if not self._hints(content):
            return content
        if content.startswith(_JSON_STARTS) and _is_json(content):
            return self._scrub_json(content)
        return self._scrub_text(content)

    def _scrub_text(self, text: bytes) -> bytes:
        for _ in range(_MAX_PASSES):
            before = text
            for hint in sorted(self._hints(text)):
                is_detector = hint != _KNOWN_PATTERN
                text = DETECTORS[hint - 1].redacted(text) if is_detector else self._labelled(text)
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

    def _scrub_json(self, content: bytes) -> bytes:
        pieces: list[bytes] = []
        end = 0
        before, name = b"", b""  # the previous token, and the last name before a value
        for match in _TOKEN.finditer(content):
            token = match.group()
            if token == b":":
                name = before
            elif token[:1] == b'"' and len(token) > SHORTEST_PASSWORD:
                clean = self._scrub_string(token, name if before == b":" else b"")
                if clean != token:
                    pieces += (content[end : match.span()[0]], clean)
                    end = match.span()[1]
            elif token in self._labels:  # a number
                pieces += (content[end : match.span()[0]], b"0")
                end = match.span()[1]
            before = token
        return b"".join((*pieces, content[end:]))

    def _scrub_string(self, token: bytes, name: bytes) -> bytes:
        text: bytes = msgspec.json.decode(token, type=str).encode()
        if _is_assigned(name[1:-1], text):
            return msgspec.json.encode(self._labels.get(text, redaction_label(ASSIGNED)).decode())
        header = name[1:-1] + b": " if name.lower() in _SECRET_HEADERS else b""
        clean = self._scrub_text(header + text).removeprefix(header)
        return token if clean == text else msgspec.json.encode(clean.decode(errors="replace"))


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
    return is_assigned_secret(name, value, is_quoted=True, ends_line=False) or is_login(name, value)


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
