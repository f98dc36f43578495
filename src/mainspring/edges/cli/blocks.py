"""Markdown as it streams in, cut into blocks that can be shown for good. Looks at nothing twice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_INNER_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_TAIL = 200


@dataclass(frozen=True, slots=True)
class Prose:
    """Whole blocks: paragraphs, a list, a table, a heading."""

    text: str


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of a fenced block, which is shown line by line: it may be long."""

    text: str
    language: str
    is_first: bool


Piece: TypeAlias = Prose | CodeLine


class Blocks:
    """Feed it text; it gives out what is complete."""

    def __init__(self) -> None:
        self.tail = ""
        """The end of what is not complete."""
        self._partial: list[str] = []
        self._lines: list[str] = []
        self._is_list = False
        self._has_gap = False
        self._inner: str | None = None
        self._code: tuple[str, str] | None = None
        self._is_first = False

    def feed(self, text: str) -> list[Piece]:
        *complete, rest = text.split("\n")
        pieces: list[Piece] = []
        for line in complete:
            given = self._line("".join(self._partial) + line)
            self._partial = []
            pieces += given
            self.tail = "" if given or not self._lines else f"{self.tail}{line} "[-_TAIL:]
        if rest:
            self._partial.append(rest)
            self.tail = (self.tail + rest)[-_TAIL:]
        return pieces

    def close(self) -> list[Piece]:
        """The rest, complete or not."""
        pieces = self._line("".join(self._partial)) if self._partial else []
        pieces += self._flush()
        self.__init__()
        return pieces

    def _line(self, line: str) -> list[Piece]:
        if self._code is not None:
            return self._code_line(line, *self._code)
        if self._inner is not None:
            self._lines.append(line)
            if _closes(line.strip(" \t>"), self._inner):
                self._inner = None
            return []
        if not line.strip():
            self._has_gap = bool(self._lines)
            return [] if self._is_list else self._flush()
        return self._words(line)

    def _code_line(self, line: str, fence: str, language: str) -> list[Piece]:
        if _closes(line, fence):
            self._code = None
            return []
        is_first, self._is_first = self._is_first, False
        return [CodeLine(line, language, is_first)]

    def _words(self, line: str) -> list[Piece]:
        pieces: list[Piece] = []
        belongs = self._is_list and (line[0] in " \t" or _ITEM.match(line) is not None)
        if self._has_gap:
            if belongs:
                self._lines.append("")
            else:
                pieces += self._flush()
            self._has_gap = False
        if not belongs and (fence := _FENCE.match(line)):
            pieces += self._flush()
            self._code, self._is_first = (fence[2], fence[3]), True
            return pieces
        if not self._lines:
            self._is_list = _ITEM.match(line) is not None
        if inner := _INNER_FENCE.match(line):
            self._inner = inner[1]
        self._lines.append(line)
        return pieces

    def _flush(self) -> list[Piece]:
        lines, self._lines = self._lines, []
        self._is_list = self._has_gap = False
        return [Prose("\n".join(lines))] if lines else []


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and bare == fence[0] * len(bare)
