"""Converts HTML to text in linear time: headings, lists, links, tables and code, as in Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urljoin

_NAME = re.compile(r"[a-zA-Z][^\s/>]{0,40}")
_MEETS = re.compile(r"[\"'>]")
_ATTRIBUTE = re.compile(r"""[\s"'](href|alt)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)
_RAW_ENDS = {tag: re.compile(f"</{tag}", re.IGNORECASE) for tag in ("script", "style")}


@dataclass(frozen=True, slots=True)
class StartTag:
    tag: str
    attributes_text: str
    """The text after the name, as written."""

    def attribute(self, name: str) -> str:
        """`href` or `alt`; empty if there is none."""
        for attribute_name, value in _ATTRIBUTE.findall(self.attributes_text):
            if attribute_name.lower() == name:
                return unescape_html(value.strip("\"'"))
        return ""


@dataclass(frozen=True, slots=True)
class EndTag:
    tag: str


Token: TypeAlias = StartTag | EndTag | str


def tokenize_html(page: str) -> Iterator[Token]:
    """Tags and text in order, without comments, scripts and styles.

    Anything that is opened and never closed extends to the end of the page, as in browsers: nothing
    is searched twice.
    """
    at = 0
    while (begin := page.find("<", at)) >= 0:
        if begin > at:
            yield unescape_html(page[at:begin])
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
                yield EndTag(tag) if is_end else StartTag(tag, page[name.end() : end])
                if not is_end and tag in _RAW_ENDS:
                    close = _RAW_ENDS[tag].search(page, at)
                    at = len(page) if close is None else close.start()
    if at < len(page):
        yield unescape_html(page[at:])


def _after_markup(page: str, begin: int) -> int:
    """Where a comment or a declaration ends; directly after `<` if it is neither."""
    if page.startswith("<!--", begin):
        close = page.find("-->", begin + 4)
        return len(page) if close < 0 else close + 3
    if page.startswith(("<!", "<?", "</"), begin):
        close = page.find(">", begin)
        return len(page) if close < 0 else close + 1
    return begin + 1


def _tag_end(page: str, at: int) -> int:
    """The position of a tag's `>`, outside of quoted values; -1 if there is none."""
    while (match := _MEETS.search(page, at)) is not None:
        if match[0] == ">":
            return match.start()
        at = match.end()
        if page[match.start() - 1] == "=" or page[match.start() - 1].isspace():
            close = page.find(match[0], at)
            if close < 0:
                return -1
            at = close + 1
    return -1


def unescape_html(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a character number with thousands of digits
        return text


_DROPPED = frozenset(
    ("script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select")
)
# fmt: off
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "dd", "details", "dialog", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "main", "nav",
    "ol", "p", "section", "summary", "table", "tbody", "thead", "tr", "ul",
))
# fmt: on
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_EMPHASIS = {"b": "**", "strong": "**", "i": "_", "em": "_"}
_MAX_DEPTH = 200  # of nested lists that are remembered; a page may open them without end


def html_to_text(html: str, url: str) -> str:
    """The text of a page; links are made absolute."""
    page = _Page(url)
    for token in tokenize_html(html):
        match token:
            case StartTag():
                page.start(token)
            case EndTag(tag=tag):
                page.end(tag)
            case str():
                page.add(token)
    return page.text()


class _Page:
    def __init__(self, url: str) -> None:
        self._url = url
        self._out: list[str] = []
        self._line: list[str] = []
        self._dropped_tag = ""
        self._drop_depth = 0
        self._lists: list[int | None] = []
        """For each open list: the number of its last item, `None` if it has no numbers."""
        self._link: tuple[str, int] | None = None
        """The target of the open link, and where its text begins in the line."""
        self._verbatim = 0
        self._is_title = False
        self._title = ""

    def text(self) -> str:
        self._end_line()
        lines: list[str] = []
        for line in "\n".join(self._out).split("\n"):
            if line.strip() or (lines and lines[-1]):
                lines.append(line if line.strip() else "")
        title = " ".join(self._title.split())
        body = "\n".join(lines).strip("\n")
        return f"# {title}\n\n{body}" if title and f"# {title}" not in body else body

    def start(self, token: StartTag) -> None:
        tag = token.tag
        if self._dropped_tag:
            self._drop_depth += tag == self._dropped_tag
        elif tag in _DROPPED:
            self._dropped_tag, self._drop_depth = tag, 1
        elif tag == "title":
            self._is_title = not self._title
        elif tag in _BLOCKS or tag in _HEADINGS or tag == "pre":
            self._begin_block(tag)
        else:
            self._begin_inline(token)

    def end(self, tag: str) -> None:
        if self._dropped_tag:
            self._drop_depth -= tag == self._dropped_tag
            if not self._drop_depth:
                self._dropped_tag = ""
        elif tag == "title":
            self._is_title = False
        elif tag in _BLOCKS or tag in _HEADINGS or tag == "pre":
            self._end_block(tag)
        else:
            self._end_inline(tag)

    def add(self, data: str) -> None:
        if self._dropped_tag:
            return
        if self._is_title:
            self._title = (self._title + data)[:500]
        elif self._verbatim:
            self._line.append(data)
        else:
            self._add_words(data)

    def _begin_block(self, tag: str) -> None:
        self._end_line()
        if tag in ("ul", "ol"):
            if len(self._lists) < _MAX_DEPTH:
                self._lists.append(0 if tag == "ol" else None)
        elif tag in _HEADINGS:
            self._out.append("")
            self._line.append(f"{_HEADINGS[tag]} ")
        elif tag == "pre":
            self._out.append("\n```")
            self._verbatim += 1
        elif tag in ("p", "table", "blockquote"):
            self._out.append("")

    def _end_block(self, tag: str) -> None:
        if tag == "pre":
            if self._verbatim:
                self._verbatim -= 1
                self._out.append(f"{''.join(self._line).strip(chr(10))}\n```\n")
                self._line.clear()
            return
        self._end_line()
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        if tag in _HEADINGS or tag in ("p", "ul", "ol", "table", "blockquote"):
            self._out.append("")

    def _begin_inline(self, token: StartTag) -> None:
        match token.tag:
            case "li":
                self._begin_item()
            case "br":
                self._line.append("\n" if self._verbatim else "")
                if not self._verbatim:
                    self._end_line()
            case "hr":
                self._end_line()
                self._out.append("\n---\n")
            case "a":
                self._end_link()
                self._link = (token.attribute("href"), len(self._line))
            case "img":
                self._add_words(f" {token.attribute('alt')} ")
            case "td" | "th":
                self._line.append("| ")
            case tag:
                self._mark(tag)

    def _end_inline(self, tag: str) -> None:
        match tag:
            case "li":
                self._end_line()
            case "a":
                self._end_link()
            case "td" | "th":
                self._line.append(" ")
            case _:
                self._mark(tag)

    def _mark(self, tag: str) -> None:
        if self._verbatim:
            return
        if tag in ("code", "kbd", "samp", "tt"):
            self._line.append("`")
        elif tag in _EMPHASIS:
            self._line.append(_EMPHASIS[tag])

    def _begin_item(self) -> None:
        self._end_line()
        mark = "-"
        if self._lists and (number := self._lists[-1]) is not None:
            self._lists[-1] = number + 1
            mark = f"{number + 1}."
        self._line.append(f"{'  ' * min(len(self._lists) - 1, 8)}{mark} ")

    def _end_link(self) -> None:
        if self._link is None:
            return
        href, begin = self._link
        self._link = None
        text = "".join(self._line[begin:]).strip()
        target = _absolute_link(self._url, href)
        if text and target and not self._verbatim:
            self._line[begin:] = [f"[{text}]({target})"]

    def _add_words(self, data: str) -> None:
        words = " ".join(data.split())
        if not words:
            words = " " if data and self._line else ""
        else:
            words = f"{' ' if data[0].isspace() else ''}{words}{' ' if data[-1].isspace() else ''}"
        if words.startswith(" ") and (not self._line or self._line[-1].endswith(" ")):
            words = words[1:]
        if words:
            self._line.append(words)

    def _end_line(self) -> None:
        if self._verbatim:
            return
        line = "".join(self._line).rstrip()
        if line.strip():
            self._out.append(line)
        self._line.clear()
        if self._link is not None:
            self._link = (self._link[0], 0)  # the link continues on the next line


def _absolute_link(url: str, href: str) -> str:
    """The absolute target of a link, if it is a page."""
    try:
        target = urljoin(url, href.strip())
    except ValueError:
        return ""
    is_page = target.startswith(("http://", "https://")) and not href.startswith("#")
    return target.replace(" ", "%20").replace(")", "%29") if is_page else ""
