"""Redacts everything before it is written to the log: known secrets, and text that looks like one.

Content without secrets costs one pass of each of two automata. In JSON, whole strings are replaced
by strings and numbers by numbers, so it keeps its structure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate

import msgspec

from mainspring.capabilities.vault.assignments import (
    FOREIGN_NAMES,
    NAMES,
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
from mainspring.capabilities.vault.json_strings import JsonStrings
from mainspring.capabilities.vault.passwords import ASSIGNED
from mainspring.capabilities.vault.secret_detector import (
    CUT_LABEL,
    PatternSet,
    ScanBudget,
    any_literal,
    compile_pattern,
    redaction_label,
)
from mainspring.capabilities.vault.tokens import JSON_KEY, NUMBER_KEY

_KNOWN_PATTERN = 0
"""The number for known secrets; the numbers of the detectors follow."""
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_PREFIX_BYTES = 12
"""A known secret is searched by this prefix; the whole is compared only where it matches."""
_ESCAPE = b"\\u"
"""In JSON, a name in another alphabet may be written with these."""
_MAX_PASSES = 8
"""After one redaction, the text next to it may also look like a secret, and so may what is left of
a JSON member: the short rest of a long value behind `password`."""
_LONGEST_NAME = 64
"""Bytes of a JSON member's name that may say that its value is secret."""
_SECRET_HEADERS = (b"cookie", b"set-cookie", b"authorization", b"proxy-authorization")
"""Headers whose values are secrets."""
_JSON_STARTS = (b"{", b"[", b'"')
_SHORTEST_STRING = SHORTEST_PASSWORD - 1
_BETWEEN_STRINGS = b"\n\0\n"
"""Between strings that are searched together: the end of a line, which no secret crosses."""
_GROUP_BYTES = 512
"""Short strings of a flood that are searched together: one by one, they would take 3 us each."""
_PLAIN_WORD = re.compile(
    rb"[A-Za-z_.]{0,40}|[a-z]{3,5}_[0-9a-f]{32}"
    rb"|\d{4}-\d\d-\d\dT\d\d:[0-9:.]{5,12}(?:Z|[+-]\d\d:\d\d)"
)
"""Types, names, ids and times of events, which must stay readable."""
_NOT_IN_NUMBER = (rb"(?<![0-9.eE+-])", rb"(?![0-9.eE+-])")
_TELLING = compile_pattern(rf"(?i){NAMES}|{FOREIGN_NAMES}|auth|cookie".encode())
"""Every name that `_is_telling` accepts, and others."""


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
        self._numbers = [
            (form, re.compile(_NOT_IN_NUMBER[0] + re.escape(form) + _NOT_IN_NUMBER[1]))
            for form in self._labels
            if _NUMBER.fullmatch(form)
        ]
        self._known_values = _KnownValues(self._labels)
        escaped = [
            msgspec.json.encode(form.decode(errors="replace"))[1:-1] for form in self._labels
        ]
        self._known_prefixes = compile_pattern(any_literal(_prefixes([*self._labels, *escaped])))
        self._triggers = _detector_triggers()

    def scrub(self, content: bytes) -> bytes:
        """Redact until nothing changes: what is left beside a redacted secret may be one too."""
        if not self._hints(content) and _ESCAPE not in content:
            return content
        budget = ScanBudget(len(content))
        is_json = content.startswith(_JSON_STARTS) and _is_json(content)
        clean_strings: set[tuple[bytes, bytes]] = set()
        for _ in range(_MAX_PASSES):
            before = content
            if is_json:
                content = self._scrub_json(content, budget, clean_strings)
            else:
                content = self._scrub_text(content, self._hints(content), budget)
            if content == before:
                break
        return content

    def _hints(self, content: bytes) -> list[int]:
        """Numbers of the detectors that may match; `_KNOWN_PATTERN` for known secrets."""
        hints = [number + 1 for number in self._triggers(content)]
        if self._labels and self._known_prefixes.search(content) is not None:
            hints.append(_KNOWN_PATTERN)
        return hints

    def _scrub_text(self, text: bytes, hints: Iterable[int], budget: ScanBudget) -> bytes:
        for hint in sorted(hints):
            is_known = hint == _KNOWN_PATTERN
            text = self._labelled(text) if is_known else DETECTORS[hint - 1].redacted(text, budget)
        return text

    def _labelled(self, text: bytes) -> bytes:
        pieces: list[bytes] = []
        end = 0
        for begin, form in self._known_values.find_spans(text):
            pieces += (text[end:begin], self._labels[form])
            end = begin + len(form)
        return b"".join((*pieces, text[end:]))

    def _scrub_json(
        self, content: bytes, budget: ScanBudget, clean_strings: set[tuple[bytes, bytes]]
    ) -> bytes:
        """`clean_strings`: names and values that an earlier pass has found to be clean."""
        strings = JsonStrings(NUMBER_KEY.pattern.sub(b"[]", content))
        names = strings.names()
        suspects = self._suspects(strings, budget.left)
        telling = [*_telling_values(strings, names)]
        if suspects is None or len(telling) > budget.left:
            self._cut_flood(strings, telling)
            return strings.joined()
        for value in telling:
            suspects.setdefault(value, set())
        for value in strings.key_values(names):
            strings.replace(value, redaction_label(JSON_KEY.kind))
        for at in sorted(suspects):
            item = (strings.texts[names[at]] if at in names else b"", strings.texts[at])
            if item in clean_strings:
                continue
            clean = self._scrub_string(*item, suspects[at], budget)
            if clean == item[1]:
                clean_strings.add(item)
            else:
                strings.replace(at, clean)
        for form, pattern in self._numbers:
            strings.replace_numbers(form, pattern)
        return strings.joined()

    def _suspects(self, strings: JsonStrings, most: int) -> dict[int, set[int]] | None:
        """The strings that must be examined one by one, and with which detectors: all others
        together show no candidate. None: there are more than `most` candidates."""
        joined = _BETWEEN_STRINGS.join(strings.texts)
        sizes = (len(text) + len(_BETWEEN_STRINGS) for text in strings.texts)
        offsets = [0, *accumulate(sizes)]
        suspects: dict[int, set[int]] = {}
        for hint in self._hints(joined):
            for start, stop in self._spans(hint, joined):
                most -= 1
                if most < 0:
                    return None
                first = bisect_right(offsets, start) - 1
                last = bisect_right(offsets, max(start, stop - 1)) - 1
                for at in range(first, last + 1):
                    suspects.setdefault(at, set()).add(hint)
        return suspects

    def _cut_flood(self, strings: JsonStrings, telling: Iterable[int]) -> None:
        """Cut what cannot be examined: of strings that together show a candidate, all that are more
        than a plain word."""
        for value in telling:
            strings.replace(value, CUT_LABEL)
        for group in strings.groups(_GROUP_BYTES):
            if self._hints(_BETWEEN_STRINGS.join(strings.texts[at] for at in group)):
                for at in group:
                    if not self._is_plain_word(strings.texts[at]):
                        strings.replace(at, CUT_LABEL)

    def _is_plain_word(self, text: bytes) -> bool:
        return _PLAIN_WORD.fullmatch(text) is not None and self._labelled(text) == text

    def _spans(self, hint: int, text: bytes) -> Iterator[tuple[int, int]]:
        if hint != _KNOWN_PATTERN:
            return DETECTORS[hint - 1].candidates(text)
        found = self._known_values.find_spans(text)
        return ((begin, begin + len(form)) for begin, form in found)

    def _scrub_string(self, name: bytes, text: bytes, hints: set[int], budget: ScanBudget) -> bytes:
        if len(text) < _SHORTEST_STRING:
            return text
        if not budget.take():
            return CUT_LABEL
        if _is_assigned(name, text):
            return self._labels.get(text, redaction_label(ASSIGNED))
        if name.lower() not in _SECRET_HEADERS:
            return self._scrub_text(text, hints, budget)
        header = name + b": "
        whole = header + text
        return self._scrub_text(whole, self._hints(whole), budget).removeprefix(header)


def _telling_values(strings: JsonStrings, names: Mapping[int, int]) -> Iterator[int]:
    """The values whose names say that they are secret."""
    values = list(names)
    joined = b"\n".join(strings.texts[names[value]] for value in values)
    offsets = [0, *accumulate(len(strings.texts[names[value]]) + 1 for value in values)]
    last = -1
    for match in _TELLING.finditer(joined):
        at = bisect_right(offsets, match.span()[0]) - 1
        if at > last and _is_telling(strings.texts[names[values[at]]]):
            yield values[at]
        last = at


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # deeper than any reader of ours accepts: text
    return True
