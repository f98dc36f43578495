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
from itertools import islice
from pathlib import PurePosixPath
from typing import TypeAlias
from xml.etree import ElementTree

import msgspec

from mainspring.core.errors import InvalidInput

MAX_BYTES = 50_000_000  # of one document
PART_BYTES = 1_800
"""About 512 tokens."""
_MAX_XML = 100_000_000  # bytes of an unpacked part
_MAX_HTML = 8_000_000  # bytes of one HTML document
_MAX_PARTS = 50_000  # headings or parts of one document
_SHORT = 500_000
"""Longer documents are read in a process of their own."""
_MAX_SECONDS = 30
"""The limit of processor time for one file."""
_PROGRAM = "mainspring.runtime.knowledge.document_program"
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_DEFINITION = re.compile(
    r"(?:export\s+|public\s+|async\s+|pub\s+)*(?:def|class|func|function|fn|struct|interface|impl|type)"
    r"\s+[A-Za-z_][\w.]*"
)
_HTML = frozenset((".html", ".htm", ".xhtml"))
_ARCHIVES = frozenset((".pdf", ".docx"))
_MARKDOWN = frozenset((".md", ".mdx", ".markdown"))
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


ReadPages: TypeAlias = Callable[[bytes], Iterable[str]]


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
    name: str,
    content: bytes,
    html_to_text: Callable[[str, str], str],
    *,
    max_seconds: int = _MAX_SECONDS,
) -> list[DocumentPart]:
    """`html_to_text` converts a page, given its text and its address, to Markdown. Long documents
    are read in a process of their own. Blocks for at most twice `max_seconds`.

    Raises:
        InvalidInput: its format is not supported, it is damaged, takes too long or too much
            memory, or its reader is missing.
    """
    suffix = PurePosixPath(name).suffix.lower()
    limit = _MAX_HTML if suffix in _HTML else MAX_BYTES
    if len(content) > limit:
        raise InvalidInput(f"{name}: longer than {limit:,} bytes")
    if suffix in _HTML:
        text = html_to_text(content.decode("utf-8", "replace"), "")
        name, content = f"{name}.md", text.encode()
    if suffix in _ARCHIVES or len(content) > _SHORT:
        return _read_in_own_process(name, content, max_seconds)
    return document_parts(name, content)


def _read_in_own_process(name: str, content: bytes, max_seconds: int) -> list[DocumentPart]:
    command = [sys.executable, "-I", "-m", _PROGRAM, name, str(max_seconds)]
    too_long = f"{name}: reading it takes longer than {max_seconds} s, or too much memory"
    try:
        process = subprocess.run(
            command, input=content, capture_output=True, timeout=max_seconds * 2, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(too_long) from error
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise InvalidInput(too_long)
    problem = process.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
    if "MemoryError" in problem:
        raise InvalidInput(too_long)
    if process.returncode:
        raise InvalidInput(problem or f"{name}: cannot be read")
    return msgspec.json.decode(process.stdout, type=list[DocumentPart])


def document_parts(
    name: str, content: bytes, read_pages: ReadPages | None = None
) -> list[DocumentPart]:
    """The parts of any document but HTML, read in this process. `read_pages`: the texts of the
    pages of a PDF file.

    Raises:
        InvalidInput: its format is not supported, it is damaged or has too many parts, or its
            reader is missing.
    """
    parts = list(islice(_parts(_lines(name, content, read_pages)), _MAX_PARTS + 1))
    if len(parts) > _MAX_PARTS:
        raise InvalidInput(f"{name}: more than {_MAX_PARTS:,} headings or parts")
    return parts


def _lines(name: str, content: bytes, read_pages: ReadPages | None) -> Iterator[_Line]:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".pdf":
        return _pdf_lines(name, content, read_pages)
    if suffix == ".docx":
        return _docx_lines(name, content)
    if b"\0" in content[:4096]:
        raise InvalidInput(f"{name}: not a text, a PDF or a DOCX file")
    text = content.decode("utf-8", "replace")
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


def _pdf_lines(name: str, content: bytes, read_pages: ReadPages | None) -> Iterator[_Line]:
    if read_pages is None:
        raise InvalidInput(f"{name}: install mainspring[documents] to read PDF files")
    try:
        for page, text in enumerate(read_pages(content), 1):
            for number, line in enumerate(text.split("\n"), 1):
                yield _Line(line, number, page)
    except MemoryError:
        raise
    except Exception as error:  # the reader raises whatever a damaged file causes
        problem = str(error).replace("\n", " ")[:200]
        raise InvalidInput(f"{name}: not a PDF file that can be read: {problem}") from error


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
        yield from _word_lines(document)
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError, NotImplementedError) as error:
        raise InvalidInput(f"{name}: not a DOCX file that can be read: {error}") from error


def _word_lines(document: bytes) -> Iterator[_Line]:
    """A paragraph may be in another one (a text box): its text then belongs to both, once."""
    number = level = depth = 0
    texts: list[str] = []
    for event, item in ElementTree.iterparse(io.BytesIO(document), ("start", "end")):
        if event == "start":
            depth += item.tag == f"{_WORD}p"
            continue
        if item.tag == f"{_WORD}t":
            texts.append(item.text or "")
        elif item.tag in (f"{_WORD}tab", f"{_WORD}br"):
            texts.append(" ")
        elif item.tag == f"{_WORD}pStyle":
            style = re.fullmatch(r"(?i)heading\s*([1-6])", item.get(f"{_WORD}val", ""))
            level = int(style[1]) if style else level
        elif item.tag == f"{_WORD}p":
            depth -= 1
            if not depth:
                number += 1
                text = "".join(texts)
                yield _Line(text, number, heading=level if text.strip() else 0)
                yield _Line("", number)
                texts, level = [], 0
        item.clear()


def _parts(lines: Iterable[_Line]) -> Iterator[DocumentPart]:
    headings: dict[int, str] = {}
    part_lines: list[_Line] = []
    size = 0
    for line in lines:
        is_new = line.heading or (part_lines and part_lines[0].page != line.page)
        is_full = size >= PART_BYTES and not line.text.strip()
        if part_lines and (is_new or is_full or size >= 2 * PART_BYTES):
            yield from _part(part_lines, headings)
            part_lines, size = [], 0
        if line.heading:
            headings = {level: text for level, text in headings.items() if level < line.heading}
            headings[line.heading] = line.text.lstrip("# ").strip()[:120]
        part_lines.append(line)
        size += len(line.text.encode("utf-8", "replace")) + 1
    yield from _part(part_lines, headings)


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
