"""Splits streamed Markdown into complete pieces: blocks, list items and lines of code."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TypeAlias

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_INNER_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})")
_LIST_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_ANY_ITEM = re.compile(r"([ \t]*)((?:[-*+]|\d{1,9}[.)])(?:[ \t]+|$))")
_INTERRUPTING_ITEM = re.compile(r" {0,3}(?:[-*+]|1[.)])[ \t]+\S")
"""A first list item that may follow a paragraph without an empty line."""
_MAX_DEPTH = 8  # of nested lists; deeper ones are shown at this depth


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A complete block: a paragraph, a table, a heading."""

    text: str


@dataclass(frozen=True, slots=True)
class ListItem:
    """A list item without the items of inner lists. Lists are shown item by item, because they may
    be long."""

    text: str
    depth: int = 0
    is_first: bool = False
    has_gap: bool = False
    """Whether an empty line precedes it."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of a fenced block. They are shown line by line, because blocks may be long."""

    text: str
    language: str
    is_first: bool


MarkdownPiece: TypeAlias = MarkdownBlock | ListItem | CodeLine


class BlockSplitter:
    """Takes text and returns complete pieces."""

    def __init__(self) -> None:
        self._partial: list[str] = []
        self._lines: list[str] = []
        self._item: ListItem | None = None
        """The list item that the lines belong to, if any."""
        self._indents: list[int] = []
        """The text columns of the enclosing items, outermost first."""
        self._has_gap = False
        self._inner: str | None = None
        self._code: tuple[str, str] | None = None
        self._is_first = False

    @property
    def pending(self) -> str:
        """The incomplete text."""
        return "\n".join([*self._lines, "".join(self._partial)])

    def feed(self, text: str) -> list[MarkdownPiece]:
        if "\n" not in text:
            self._partial.append(text)
            return []
        *complete, last = text.split("\n")
        pieces: list[MarkdownPiece] = []
        for line in complete:
            pieces += self._line("".join(self._partial) + line)
            self._partial = []
        if last:
            self._partial.append(last)
        return pieces

    def close(self) -> list[MarkdownPiece]:
        """The remaining pieces, complete or not."""
        pieces = self._line("".join(self._partial)) if self._partial else []
        pieces += self._flush()
        self.__init__()
        return pieces

    def _line(self, line: str) -> list[MarkdownPiece]:
        if self._code is not None:
            return self._code_line(line, *self._code)
        if self._inner is not None:
            self._lines.append(line)
            if _closes_fence(line.strip(" \t>"), self._inner):
                self._inner = None
            return []
        if not line.strip():
            self._has_gap = bool(self._lines)
            return [] if self._item is not None else self._flush()
        return self._text_line(line)

    def _code_line(self, line: str, fence: str, language: str) -> list[MarkdownPiece]:
        if _closes_fence(line, fence):
            self._code = None
            return []
        is_first, self._is_first = self._is_first, False
        return [CodeLine(line, language, is_first)]

    def _text_line(self, line: str) -> list[MarkdownPiece]:
        is_item = _LIST_ITEM.match(line) is not None
        belongs = self._item is not None and (is_item or line[0] in " \t")
        pieces = [] if belongs or not self._has_gap else self._flush()
        if not belongs and (fence := _FENCE.match(line)):
            pieces += self._flush()
            self._code, self._is_first = (fence[2], fence[3]), True
            return pieces
        begins_list = is_item and (not self._lines or _INTERRUPTING_ITEM.match(line) is not None)
        starts_item = _ANY_ITEM.match(line) if belongs or begins_list else None
        if starts_item is not None:
            pieces += self._begin_item(starts_item)
        elif self._has_gap:
            self._lines.append("")
        self._has_gap = False
        if inner := _INNER_FENCE.match(line):
            self._inner = inner[1]
        self._lines.append(line)
        return pieces

    def _begin_item(self, match: re.Match[str]) -> list[MarkdownPiece]:
        """Complete the previous item and begin a new one."""
        had_gap, is_first = self._has_gap, self._item is None
        indents = self._indents
        pieces = self._flush()
        indent = len(match[1].expandtabs(4))
        indents = [at for at in indents if at <= indent]
        self._indents = [*indents[:_MAX_DEPTH], indent + len(match[2].rstrip()) + 1]
        self._item = ListItem("", len(self._indents) - 1, is_first, had_gap and not is_first)
        return pieces

    def _flush(self) -> list[MarkdownPiece]:
        lines, self._lines = self._lines, []
        item, self._item, self._has_gap, self._indents = self._item, None, False, []
        if not lines:
            return []
        if item is None:
            return [MarkdownBlock("\n".join(lines))]
        return [replace(item, text=_dedent(lines))]


def _dedent(lines: list[str]) -> str:
    """The lines of an item without the indentation of its marker."""
    margin = len(lines[0]) - len(lines[0].lstrip(" \t"))
    return "\n".join(line[min(margin, len(line) - len(line.lstrip(" \t"))) :] for line in lines)


def _closes_fence(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and bare == fence[0] * len(bare)
