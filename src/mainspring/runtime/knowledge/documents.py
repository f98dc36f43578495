"""Reads documents (Markdown, HTML, PDF, DOCX, code and plain text) in parts of about 512 tokens,
each with the headings above it, its line and, if there are pages, its page.
"""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from xml.etree import ElementTree

import msgspec

from mainspring.core.errors import InvalidInput

MAX_BYTES = 50_000_000
PART_BYTES = 1_800
"""About 512 tokens."""
_MAX_XML = 100_000_000
_PDF_SECONDS = 30
"""The limit of processor time for one file."""
_PDF_READER = "mainspring.runtime.knowledge.pdf_pages"
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_DEFINITION = re.compile(
    r"(?:export\s+|public\s+|async\s+|pub\s+)*(?:def|class|func|function|fn|struct|interface|impl|type)"
    r"\s+[A-Za-z_][\w.]*"
)
_HTML = frozenset((".html", ".htm", ".xhtml"))
_MARKDOWN = frozenset((".md", ".mdx", ".markdown"))
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPart:
    text: str
    line: int
    """The line in the text; in a DOCX file, the number of the paragraph."""
    page: int = 0
    """0 if the document has no pages."""
    context: str = ""
    """The headings, or the definition, above it."""


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    number: int
    page: int = 0
    heading: int = 0
    """The level of the heading; 0 if the line is not a heading."""


def read_document(
    name: str, content: bytes, html_to_text: Callable[[str, str], str]
) -> list[DocumentPart]:
    """`html_to_text` converts a page, given its text and its address, to Markdown.

    Raises:
        InvalidInput: its format is not supported, it is damaged, or its reader is missing.
    """
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"{name}: longer than {MAX_BYTES:,} bytes")
    return list(_parts(_lines(name, content, html_to_text)))


def _lines(name: str, content: bytes, html_to_text: Callable[[str, str], str]) -> Iterator[_Line]:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".pdf":
        return _pdf_lines(name, content)
    if suffix == ".docx":
        return _docx_lines(name, content)
    if b"\0" in content[:4096]:
        raise InvalidInput(f"{name}: not a text, a PDF or a DOCX file")
    text = content.decode("utf-8", "replace")
    if suffix in _HTML:
        return _markdown_lines(html_to_text(text, ""))
    return _markdown_lines(text) if suffix in _MARKDOWN else _code_lines(text)


def _markdown_lines(text: str) -> Iterator[_Line]:
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        is_code ^= line.lstrip().startswith(("```", "~~~"))
        heading = None if is_code else _HEADING.match(line)
        yield _Line(line, number, heading=len(heading[1]) if heading else 0)


def _code_lines(text: str) -> Iterator[_Line]:
    """Treat each definition as a heading."""
    for number, line in enumerate(text.split("\n"), 1):
        yield _Line(line, number, heading=1 if _DEFINITION.match(line) else 0)


def _pdf_lines(name: str, content: bytes) -> Iterator[_Line]:
    for page, text in enumerate(pdf_pages(name, content), 1):
        for number, line in enumerate(text.split("\n"), 1):
            yield _Line(line, number, page)


def pdf_pages(name: str, content: bytes, *, max_seconds: int = _PDF_SECONDS) -> list[str]:
    """Return the text of each page. Blocks for at most twice `max_seconds`.

    Raises:
        InvalidInput: it is damaged, takes too long or too much memory, or the reader is missing.
    """
    command = [sys.executable, "-I", "-m", _PDF_READER, str(max_seconds)]
    try:
        process = subprocess.run(
            command, input=content, capture_output=True, timeout=max_seconds * 2, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(f"{name}: reading it takes longer than {max_seconds} s") from error
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise InvalidInput(f"{name}: reading it takes longer than {max_seconds} s")
    if process.returncode:
        problem = process.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        if "No module named 'pypdf'" in problem:
            raise InvalidInput(f"{name}: install mainspring[documents] to read PDF files")
        raise InvalidInput(f"{name}: not a PDF file that can be read: {problem}")
    return msgspec.json.decode(process.stdout, type=list[str])


def _docx_lines(name: str, content: bytes) -> Iterator[_Line]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entry = archive.getinfo("word/document.xml")
            if entry.file_size > _MAX_XML:
                raise InvalidInput(f"{name}: its text is longer than {_MAX_XML:,} bytes")
            with archive.open(entry) as file:
                document = file.read(_MAX_XML + 1)
        if len(document) > _MAX_XML or b"<!DOCTYPE" in document or b"<!ENTITY" in document:
            raise InvalidInput(f"{name}: its text defines entities, or is too long")
        root = ElementTree.fromstring(document)
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError, NotImplementedError) as error:
        raise InvalidInput(f"{name}: not a DOCX file that can be read: {error}") from error
    for number, paragraph in enumerate(root.iter(f"{_WORD}p"), 1):
        style = paragraph.find(f"{_WORD}pPr/{_WORD}pStyle")
        kind = "" if style is None else style.get(f"{_WORD}val", "")
        level = re.fullmatch(r"(?i)heading\s*([1-6])", kind)
        text = "".join(_docx_texts(paragraph))
        yield _Line(text, number, heading=int(level[1]) if level and text.strip() else 0)
        yield _Line("", number)


def _docx_texts(paragraph: ElementTree.Element) -> Iterator[str]:
    for item in paragraph.iter():
        if item.tag == f"{_WORD}t":
            yield item.text or ""
        elif item.tag in (f"{_WORD}tab", f"{_WORD}br"):
            yield " "


def _parts(lines: Iterable[_Line]) -> Iterator[DocumentPart]:
    headings: dict[int, str] = {}
    part_lines: list[_Line] = []
    for line in lines:
        is_full = sum(len(item.text.encode()) + 1 for item in part_lines) >= PART_BYTES
        is_new = line.heading or (part_lines and part_lines[0].page != line.page)
        if part_lines and (
            is_new or (is_full and not line.text.strip()) or _is_overlong(part_lines)
        ):
            yield from _part(part_lines, headings)
            part_lines = []
        if line.heading:
            headings = {level: text for level, text in headings.items() if level < line.heading}
            headings[line.heading] = line.text.lstrip("# ").strip()[:120]
        part_lines.append(line)
    yield from _part(part_lines, headings)


def _is_overlong(lines: list[_Line]) -> bool:
    return sum(len(line.text.encode()) + 1 for line in lines) >= 2 * PART_BYTES


def _part(lines: list[_Line], headings: dict[int, str]) -> Iterator[DocumentPart]:
    """Yield one part; cut a line that is longer than two parts."""
    text = "\n".join(line.text for line in lines)
    first = next((line for line in lines if line.text.strip()), None)
    if first is None:
        return
    context = " > ".join(headings[level] for level in sorted(headings))
    for start in range(0, len(text), 2 * PART_BYTES):
        piece = text[start : start + 2 * PART_BYTES].strip()
        if piece:
            yield DocumentPart(text=piece, line=first.number, page=first.page, context=context)
