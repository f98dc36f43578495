"""Characters that a model reads and a person does not see: finds, shows and removes them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import TypeAlias

from mainspring.runtime.packages.scan_rule import ScanMatch, Severity

_MAX_EXCERPT = 160  # characters of a finding
_TAGS = r"\U000e0000-\U000e007f"
_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_EMPTY = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2064\u206a-\u206f"
    r"\u3164\ufeff\uffa0\ufff9-\ufffb"
)
_INVISIBLE = re.compile(f"[{_TAGS}{_SELECTORS}{''.join(sorted(_BIDI_CONTROLS))}{_EMPTY}]+")

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_STEERING = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z])?|[\x00-\x08\x0e-\x1f\x7f]")

# Letters of other alphabets that look like Latin ones.
_LOOKALIKES = str.maketrans(
    "абвеѕіјкмнорсԛтухһԁԝгАВЕЅІЈКМНОРСТУХαεικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ’",
    "abvesijkmhopcqtyxhdwrABESIJKMHOPCTYXaeiknoptuxABEZHIKMNOPTYX'",
)
_MIXED = re.compile(r"[A-Za-z][\u0400-\u052f]|[\u0400-\u052f][A-Za-z]")
_MIXED_NAME = re.compile(
    r"[A-Za-z].*[\u0370-\u03ff\u0400-\u052f]|[\u0370-\u03ff\u0400-\u052f].*[A-Za-z]"
)


def make_visible(text: str) -> str:
    """A short excerpt of foreign text on one line, safe to show."""
    flat = " ".join(text[: 4 * _MAX_EXCERPT].split(" ")).strip()
    visible = "".join(
        item if item.isprintable() and not _INVISIBLE.match(item) else _escape(item)
        for item in flat
    )
    return visible if len(visible) <= _MAX_EXCERPT else f"{visible[: _MAX_EXCERPT - 1]}…"


def _escape(character: str) -> str:
    return " " if character in "\n\t\r" else f"\\u{{{ord(character):x}}}"


def reveal_text(text: str) -> str:
    """The text as a model reads it: without invisible characters, and with lookalike letters
    replaced. The lines stay the same."""
    text = _STEERING.sub("", text)
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_LOOKALIKES)


def has_mixed_letters(name: str) -> bool:
    return _MIXED_NAME.search(name) is not None


def find_hidden_text(text: str, *, is_script: bool) -> Iterator[ScanMatch]:
    """The invisible characters in a text; a byte order mark at the start is normal."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if control := _CONTROLS.search(line):
            rule = "control-characters"
            yield ScanMatch(rule, "hidden", "caution", number, _around(line, control), _WHY[rule])
        if line.isascii():
            continue
        for run in _INVISIBLE.finditer(line):
            rating = (
                _tags(line, run)
                or _selectors(run)
                or _bidi(line, run, is_script=is_script)
                or _zero_width(line, run)
            )
            if rating is not None:
                rule, severity, excerpt = rating
                yield ScanMatch(rule, "hidden", severity, number, excerpt, _WHY[rule])
        if pair := _MIXED.search(line):
            excerpt = _around(line, pair)
            yield ScanMatch(
                "mixed-letters", "hidden", "caution", number, excerpt, _WHY["mixed-letters"]
            )


_WHY = {
    "control-characters": "They can hide or change what a terminal shows of the text.",
    "tag-characters": "Unicode tag characters: models read them as letters, people see nothing.",
    "variation-selectors": "They do not change what is displayed; a row of them can be a message.",
    "bidi-controls": "They change the order of what is displayed: people see a different text.",
    "zero-width": "Characters without width can hide a word from a search, or carry a message.",
    "mixed-letters": "Latin and Cyrillic letters in one word: it is not what it looks like.",
}
_Rating: TypeAlias = tuple[str, Severity, str]


def _around(line: str, match: re.Match[str]) -> str:
    return make_visible(line[max(0, match.start() - 30) : match.end() + 60])


def _tags(line: str, run: re.Match[str]) -> _Rating | None:
    tags = [item for item in run[0] if "\U000e0000" <= item <= "\U000e007f"]
    # Regional flags use a few of them: a black flag, five letters, an end mark.
    is_flag = len(run[0]) <= 7 and line[max(0, run.start() - 1) : run.start()] == "\U0001f3f4"
    if not tags or is_flag:
        return None
    text = "".join(chr(ord(tag) - 0xE0000) for tag in tags if ord(tag) > 0xE001F)
    return "tag-characters", "danger", f"hidden text: {make_visible(text)}"


def _selectors(run: re.Match[str]) -> _Rating | None:
    count = sum(1 for item in run[0] if _is_selector(item))
    return ("variation-selectors", "danger", f"{count} in a row") if count >= 3 else None


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _bidi(line: str, run: re.Match[str], *, is_script: bool) -> _Rating | None:
    controls = set(run[0]) & _BIDI_CONTROLS
    if not controls:
        return None
    is_danger = is_script or controls & {"\u202d", "\u202e"}
    return "bidi-controls", "danger" if is_danger else "caution", _around(line, run)


def _zero_width(line: str, run: re.Match[str]) -> _Rating | None:
    if all(_is_selector(item) for item in run[0]):
        return None
    neighbours = line[max(0, run.start() - 1) : run.start()] + line[run.end() : run.end() + 1]
    is_long = len(run[0]) >= 8
    # They are normal between emoji and in the scripts that need them.
    if not is_long and not any(item.isascii() and item.isalnum() for item in neighbours):
        return None
    return "zero-width", "danger" if is_long else "caution", _around(line, run)
