"""HTML taken apart into tags and text, in time that grows with its length only.

The standard library's parser takes minutes for 200 kB of unclosed quotes, and pages are hostile.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

_NAME = re.compile(r"[a-zA-Z][^\s/>]{0,40}")
_MEETS = re.compile(r"[\"'>]")
_ATTRIBUTE = re.compile(r"""[\s"'](href|alt)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)
_RAW_ENDS = {tag: re.compile(f"</{tag}", re.IGNORECASE) for tag in ("script", "style")}


@dataclass(frozen=True, slots=True)
class Start:
    tag: str
    rest: str
    """What stands behind the name, as written."""

    def attribute(self, name: str) -> str:
        """`href` or `alt`; empty if there is none."""
        for found, value in _ATTRIBUTE.findall(self.rest):
            if found.lower() == name:
                return unescaped(value.strip("\"'"))
        return ""


@dataclass(frozen=True, slots=True)
class End:
    tag: str


Token: TypeAlias = Start | End | str


def tokens(page: str) -> Iterator[Token]:
    """Tags and texts in order; comments and what is in scripts and styles are left out.

    What is begun and never closed goes to the end of the page, as browsers have it: nothing is
    looked for twice.
    """
    at = 0
    while (begin := page.find("<", at)) >= 0:
        if begin > at:
            yield unescaped(page[at:begin])
        name = _NAME.match(page, begin + (2 if page.startswith("</", begin) else 1))
        if name is None:
            at = _after_markup(page, begin)
            if at == begin + 1:
                yield "<"
        else:
            end = _tag_end(page, name.end())
            tag = name[0].lower()
            at = len(page) if end < 0 else end + 1
            if end >= 0:
                is_end = page[begin + 1] == "/"
                yield End(tag) if is_end else Start(tag, page[name.end() : end])
                if not is_end and tag in _RAW_ENDS:
                    close = _RAW_ENDS[tag].search(page, at)
                    at = len(page) if close is None else close.start()
    if at < len(page):
        yield unescaped(page[at:])


def _after_markup(page: str, begin: int) -> int:
    """Where a comment or a declaration ends; right behind `<` if it is neither."""
    if page.startswith("<!--", begin):
        close = page.find("-->", begin + 4)
        return len(page) if close < 0 else close + 3
    if page.startswith(("<!", "<?", "</"), begin):
        close = page.find(">", begin)
        return len(page) if close < 0 else close + 1
    return begin + 1


def _tag_end(page: str, at: int) -> int:
    """Where a tag's `>` is: not one in a quoted value. -1 if there is none."""
    while (met := _MEETS.search(page, at)) is not None:
        if met[0] == ">":
            return met.start()
        at = met.end()
        if page[met.start() - 1] == "=" or page[met.start() - 1].isspace():
            close = page.find(met[0], at)
            if close < 0:
                return -1
            at = close + 1
    return -1


def unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # the number of a character with thousands of digits
        return text
