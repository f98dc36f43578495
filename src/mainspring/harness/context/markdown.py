"""Markdown as far as instruction files need it: what is code, a comment, an import."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["text", "code", "comment"]

_MARK = re.compile(r"`+|~{3,}|<!--")
_BACKTICKS = re.compile(r"`+")
_REFERENCE = re.compile(r"#\[\[file:([^\[\]\n\0]{1,1000})\]\]")
_BEFORE_FENCE = " \t>-*+.)0123456789"  # quotes and list items have fences too
_MAX_FENCE_INDENT = 40


def without_comments(text: str) -> str:
    """The text without HTML comments, but for those that are shown as code."""
    kept = ""
    is_after_comment = False
    for kind, piece in _pieces(text):
        if kind == "comment":
            is_after_comment = True
            continue
        # A comment that had its lines to itself takes its last line break with it.
        had_lines = is_after_comment and (not kept or kept.endswith("\n"))
        kept += piece.removeprefix("\n") if had_lines else piece
        is_after_comment = False
    return kept


def import_mentions(text: str) -> tuple[str, ...]:
    """The paths that are mentioned as `@path` outside of code and comments, in order, once each."""
    words = (word for word in _masked(text).split() if word.startswith("@") and "\0" not in word)
    return tuple(dict.fromkeys(word[1:] for word in words if len(word) > 1))


def file_references(text: str) -> tuple[str, ...]:
    """The paths that are referred to as `#[[file:path]]`, which is how Kiro imports."""
    return tuple(dict.fromkeys(name.strip() for name in _REFERENCE.findall(_masked(text))))


def line_of(text: str, words: str) -> int | None:
    """The line in which words first stand outside of code and comments, counted from 1."""
    line = 1
    for kind, piece in _pieces(text):
        at = piece.find(words) if kind == "text" else -1
        if at >= 0:
            return line + piece.count("\n", 0, at)
        line += piece.count("\n")
    return None


def is_only_imports(text: str) -> bool:
    """Whether nothing is left to say once the imported files are there (true of a blank text)."""
    return all(word.startswith("@") for word in _masked(text).split())


def _masked(text: str) -> str:
    pieces = _pieces(without_comments(text))
    return "".join(piece if kind == "text" else "\0" for kind, piece in pieces)


def _pieces(text: str) -> Iterator[tuple[Kind, str]]:
    """The whole text, cut where its kind changes; the files are foreign, so no text is slow."""
    runs = defaultdict[int, list[int]](list)
    for run in _BACKTICKS.finditer(text):
        runs[len(run[0])].append(run.start())
    last_comment_end = text.rfind("-->")
    start = at = 0
    while mark := _MARK.search(text, at):
        kind: Kind = "comment" if mark[0] == "<!--" else "code"
        if kind == "code":
            end = _fence_end(text, mark) or _span_end(text, mark, runs[len(mark[0])])
        else:
            end = text.find("-->", mark.end()) + 3 if mark.end() <= last_comment_end else None
        if end is None:
            at = mark.end()
            continue
        if start < mark.start():
            yield "text", text[start : mark.start()]
        yield kind, text[mark.start() : end]
        start = at = end
    if start < len(text):
        yield "text", text[start:]


def _fence_end(text: str, mark: re.Match[str]) -> int | None:
    if len(mark[0]) < 3 or not _opens_fence(text, mark):
        return None
    closing = rf"^[ \t>]*{mark[0][0]}{{{len(mark[0])},}}[ \t]*$"
    found = re.compile(closing, re.MULTILINE).search(text, mark.end())
    return len(text) if found is None else found.end()


def _opens_fence(text: str, mark: re.Match[str]) -> bool:
    search_start = max(0, mark.start() - _MAX_FENCE_INDENT)
    line_start = text.rfind("\n", search_start, mark.start()) + 1
    before = text[line_start or search_start : mark.start()]
    if before.strip(_BEFORE_FENCE) or (not line_start and search_start):
        return False
    line_end = text.find("\n", mark.end())
    after = text[mark.end() : len(text) if line_end < 0 else line_end]
    return mark[0].startswith("~") or "`" not in after


def _span_end(text: str, mark: re.Match[str], runs: Sequence[int]) -> int | None:
    """Where as many backticks stand again, in the same paragraph."""
    if mark[0].startswith("~"):
        return None
    following = bisect_right(runs, mark.start())
    if following == len(runs) or text.find("\n\n", mark.end(), runs[following]) >= 0:
        return None
    return runs[following] + len(mark[0])
