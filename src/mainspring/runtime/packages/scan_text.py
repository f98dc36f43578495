"""Applies the scan rules to the text of one file, in linear time."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice

import re2

from mainspring.runtime.packages.hidden_text import make_visible, reveal_text
from mainspring.runtime.packages.scan_rule import ScanMatch, ScanRule, Severity, compile_pattern
from mainspring.runtime.packages.scan_rules import (
    AT_ONCE,
    BLOB,
    CODE_RULES,
    COMMENT,
    HIDDEN_STYLE,
    IMPERATIVE,
    INJECTION,
    KNOWN_INSTALLERS,
    LIFECYCLE,
    LINK,
    LONG_LINE,
    OUT_OF_SIGHT,
    PAIR_RULES,
    PERSISTENCE_RULES,
    PIPED_TO_SHELL,
)

_RULES = (*CODE_RULES, *PERSISTENCE_RULES)
_WITHOUT_MARKUP = bytes.maketrans(b"*`", b"  ")
"""Replaces bold and code markup with spaces."""
_MAX_MATCHES = 1000
"""The most matches of one rule in one file."""
_LONG_LINE = 5000  # characters: nobody reads them in a review
_LONG_BLOB = 400  # characters of base64 that may hide a program
_MAX_DECODED = 100_000  # bytes of it that are decoded and scanned
_HOST = compile_pattern(r"https?://[a-z0-9][a-z0-9.-]*")
_INLINE_PROGRAM = re.compile(rb"\s+-(?:m\s+json\.tool\b|(?:[np]{0,2}e|c)\s)")
_RUNS_INPUT = compile_pattern(
    r"\b(?:exec|eval|compile|system|subprocess|popen|spawn|pickle|marshal|import)\w*\s*[(.]"
)
_RELATIVE = re.compile(
    rb"\b(?:that|which|who)\s+(?!you|must|should|shall|will|need)(?:\w+\s+){1,3}$", re.IGNORECASE
)
_FENCE = re.compile(rb"^ {0,3}(?:```|~~~)", re.MULTILINE)
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2})+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedText:
    """A text as a model reads it, in UTF-8."""

    path: str
    text: bytes
    is_script: bool
    is_prose: bool = False
    with_markup: bytes = b""
    """The same text before its markup was replaced, of equal length in bytes; empty otherwise."""
    excerpt_prefix: str = ""
    """Put before each of its excerpts."""
    numbers: Sequence[int] = ()
    """The line in the file of each line of the text; empty if they are the same."""
    _starts: list[int] = field(default_factory=list[int])
    _fences: list[int] = field(default_factory=list[int])

    def is_code(self, offset: int) -> bool:
        """Whether it is in a code block, which is displayed literally."""
        if not self._fences:
            self._fences.extend([-1, *(match.start() for match in _FENCE.finditer(self.text))])
        return bisect_right(self._fences, offset) % 2 == 0

    def line(self, offset: int) -> int:
        if not self._starts:
            lengths = (len(line) + 1 for line in self.text.split(b"\n"))
            self._starts.extend(accumulate(lengths, initial=0))
        number = bisect_right(self._starts, offset)
        return self.numbers[number - 1] if self.numbers else number

    def match(self, rule: ScanRule, severity: Severity, span: tuple[int, int]) -> ScanMatch:
        start = span[0]
        while start < span[1] - 1 and self.text[start : start + 1].isspace():
            start += 1
        first = max(self.text.rfind(b"\n", 0, start) + 1, start - 40)
        last = self.text.find(b"\n", start, start + 240)
        line_text = self.text[first : start + 240 if last < 0 else last].decode("utf-8", "replace")
        excerpt = self.excerpt_prefix + make_visible(line_text)
        return ScanMatch(rule.name, rule.topic, severity, self.line(start), excerpt, rule.why)


def scanned_text(path: str, text: str, *, is_script: bool, is_prose: bool) -> ScannedText:
    plain = reveal_text(text).encode("utf-8", "replace")
    return ScannedText(path=path, text=plain, is_script=is_script, is_prose=is_prose)


def find_matches(page: ScannedText) -> Iterator[ScanMatch]:
    yield from _rule_matches(page, (*_RULES, OUT_OF_SIGHT), is_script=page.is_script)
    plain_page = replace(page, text=page.text.translate(_WITHOUT_MARKUP), with_markup=page.text)
    yield from _rule_matches(plain_page, INJECTION, is_script=page.is_script)
    yield from _pairs(page)
    yield from _blobs(page)
    yield from _long_lines(page)
    if page.path.endswith("package.json"):
        yield from _rule_matches(page, (LIFECYCLE,), is_script=True)
    if page.is_prose:
        yield from _rule_matches(page, (HIDDEN_STYLE,), is_script=False)
        yield from _comments(page)
        yield from _links(page)
        yield from _run_at_once(page)


def find_command_matches(path: str, commands: Sequence[tuple[int, str]]) -> Iterator[ScanMatch]:
    """The commands in the text of a file, each with its line: scanned like scripts."""
    lines = [(number, line) for number, text in commands for line in text.split("\n")]
    plain = reveal_text("\n".join(line for _, line in lines)).encode("utf-8", "replace")
    inner = ScannedText(
        path=path, text=plain, is_script=True, numbers=[number for number, _ in lines]
    )
    yield from _rule_matches(inner, _RULES, is_script=True)
    yield from _pairs(inner)


def find_hosts(page: ScannedText) -> set[str]:
    spans = (match.span() for match in islice(_HOST.finditer(page.text), _MAX_MATCHES))
    urls = (page.text[start:end].decode().lower() for start, end in spans)
    return {url.partition("://")[2].strip(".-") for url in urls}


def _rule_matches(
    page: ScannedText, rules: Sequence[ScanRule], *, is_script: bool
) -> Iterator[ScanMatch]:
    for rule in rules:
        full = rule.script if is_script else rule.prose
        if full is None:
            continue
        for count, match in enumerate(rule.regex_pattern.finditer(page.text), 1):
            # Beyond the limit, harmless matches are no longer filtered out.
            is_last = count > _MAX_MATCHES
            yield page.match(
                rule, full if is_last else _severity(page, rule, full, match), match.span()
            )
            if is_last:
                break


def _severity(
    page: ScannedText, rule: ScanRule, full: Severity, match: re2.Match[bytes]
) -> Severity:
    start, end = match.span()
    if page.is_script and _is_comment(page.text, start):
        full = "caution" if rule is PIPED_TO_SHELL else rule.prose or "note"
    if full == "danger" and page.with_markup and _is_mention(page.with_markup, start, end):
        return "caution"
    if rule is HIDDEN_STYLE and _is_visible(page, start):
        return "note"
    if rule is not PIPED_TO_SHELL:
        return full
    command = page.text[start:end]
    is_known = KNOWN_INSTALLERS.search(command) is not None and command.count(b"://") == 1
    return "caution" if is_known or _is_filter(page.text, end) else full


def _is_visible(page: ScannedText, start: int) -> bool:
    """Whether people see it anyway: as code, or as white text on a colored background."""
    return b"background" in page.text[start : page.text.find(b">", start)] or page.is_code(start)


def _is_filter(text: bytes, end: int) -> bool:
    """Whether the interpreter gets its program on the command line: the fetched data is only its
    input."""
    line_end = text.find(b"\n", end)
    tail = text[end : len(text) if line_end < 0 else line_end]
    return _INLINE_PROGRAM.match(tail) is not None and _RUNS_INPUT.search(tail) is None


def _is_mention(text: bytes, start: int, end: int) -> bool:
    """Whether the words are quoted or part of a description ("jobs that fail without ...")."""
    return _is_quoted(text, start, end) or (
        text[start : start + 7].lower() == b"without"
        and _RELATIVE.search(text[text.rfind(b"\n", 0, start) + 1 : start]) is not None
    )


def _is_comment(text: bytes, offset: int) -> bool:
    line = text[text.rfind(b"\n", 0, offset) + 1 : offset + 3].lstrip()
    return line.startswith((b"#", b"//")) and not line.startswith(b"#!")


def _is_quoted(text: bytes, start: int, end: int) -> bool:
    """Whether it is between backticks or quotation marks on one line."""
    before = text[text.rfind(b"\n", 0, start) + 1 : start]
    line_end = text.find(b"\n", end)
    after = text[end : len(text) if line_end < 0 else line_end]
    return any(before.count(mark) % 2 and mark in after for mark in (b"`", b'"'))


def _pairs(page: ScannedText) -> Iterator[ScanMatch]:
    """Find pairs that are worse together than alone, within one script."""
    for rule, second in PAIR_RULES if page.is_script else ():
        match = rule.regex_pattern.search(page.text)
        if match is not None and second.search(page.text) is not None:
            yield page.match(rule, "danger", match.span())


def _blobs(page: ScannedText) -> Iterator[ScanMatch]:
    """Decode encoded text, one level deep."""
    for match in islice(BLOB.regex_pattern.finditer(page.text), _MAX_MATCHES):
        start, end = match.span()
        decoded = _decode(page.text[start : min(end, start + _MAX_DECODED)])
        if decoded is not None:
            plain = reveal_text(decoded).encode("utf-8", "replace")
            lines = [page.line(start)] * (plain.count(b"\n") + 1)
            inner = ScannedText(
                path=page.path,
                text=plain,
                is_script=True,
                excerpt_prefix="encoded: ",
                numbers=lines,
            )
            yield from _rule_matches(inner, _RULES, is_script=True)
            yield from _rule_matches(inner, INJECTION, is_script=False)
        is_picture = page.text[max(0, start - 40) : start].endswith(b";base64,")
        if end - start >= _LONG_BLOB and not is_picture:
            yield page.match(BLOB, "caution", (start, end))


def _decode(blob: bytes) -> str | None:
    """`None` if it is not text."""
    blob = blob.replace(b"\n", b"")
    try:
        if _HEX.fullmatch(blob):
            text = bytes.fromhex(blob.decode()).decode()
        else:
            digits = blob.rstrip(b"=")
            digits = digits[: len(digits) - (len(digits) % 4 == 1)]
            text = base64.b64decode(digits + b"=" * (-len(digits) % 4)).decode()
    except (ValueError, binascii.Error):
        return None
    printable = sum(item.isprintable() or item in "\n\t" for item in text)
    return text if printable >= 0.9 * len(text) else None


def _long_lines(page: ScannedText) -> Iterator[ScanMatch]:
    if len(page.text) <= _LONG_LINE:
        return
    severity = LONG_LINE.script if page.is_script else LONG_LINE.prose
    start = 0
    for line in page.text.split(b"\n"):
        if len(line) > _LONG_LINE and severity is not None:
            yield page.match(LONG_LINE, severity, (start, start + len(line)))
        start += len(line) + 1


def _comments(page: ScannedText) -> Iterator[ScanMatch]:
    """Find comments that seem to address the model; the other rules apply to all comments."""
    spans = [
        match.span() for match in islice(COMMENT.regex_pattern.finditer(page.text), _MAX_MATCHES)
    ]
    start = page.text.find(b"<!--")
    while start >= 0 and len(spans) < 2 * _MAX_MATCHES:
        end = page.text.find(b"-->", start)
        end = len(page.text) if end < 0 else end
        spans.append((start, end))
        start = page.text.find(b"<!--", end)
    for start, end in spans:
        if IMPERATIVE.search(page.text[start:end]) is not None:
            yield page.match(COMMENT, "caution", (start, end))


def _links(page: ScannedText) -> Iterator[ScanMatch]:
    for match in islice(LINK.regex_pattern.finditer(page.text), _MAX_MATCHES):
        start, end = match.span()
        target = page.text[start:end].decode("utf-8", "replace")[2:-1].strip()
        where = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), target))
        if not target.startswith("..") or where.startswith(".."):
            yield page.match(LINK, "note", (start, end))


def _run_at_once(page: ScannedText) -> Iterator[ScanMatch]:
    commands: list[tuple[int, str]] = []
    for match in islice(AT_ONCE.regex_pattern.finditer(page.text), _MAX_MATCHES):
        yield page.match(AT_ONCE, "caution", match.span())
        start, end = match.span()
        command = page.text[start:end].strip().strip(b"!`").decode("utf-8", "replace")
        commands.append((page.line(start), command))
    yield from find_command_matches(page.path, commands)
