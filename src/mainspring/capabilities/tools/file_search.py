"""Searches open files for lines that match an expression: with ripgrep if available, else in
Python.

Files are passed as descriptors, so that no path is resolved a second time.
"""

from __future__ import annotations

import codecs
import os
import shutil
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias, cast

import re2
from anyio import to_thread
from anyio.abc import Process
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.processes import start_process

_MAX_CHARS = 5000  # of a regular expression


def compile_regex(expression: str, *, ignore_case: bool = False) -> re2.Pattern[bytes]:
    """Raises InvalidInput: it is not a valid expression, or too long."""
    if not expression or len(expression) > _MAX_CHARS:
        raise InvalidInput(f"an expression has 1 to {_MAX_CHARS:,} characters")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(expression.encode("utf-8", "replace"), options)
    except re2.error as error:
        [why] = cast("tuple[bytes]", error.args)
        raise InvalidInput(
            f"not a regular expression: {why.decode('utf-8', 'replace')}. The syntax is RE2's: no"
            " look-around, no back-references; a backslash makes a character mean itself."
        ) from error


MAX_FILE_BYTES = 50_000_000  # larger files are data
_MAX_OUTPUT_BYTES = 16_000_000  # of ripgrep, before it is cut for the model
_SNIFFED_BYTES = 8192  # a file with a NUL among them is binary, unless it is UTF-16
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DESCRIPTORS = "/dev/fd"


class SearchQuery(Struct, frozen=True, kw_only=True):
    expression: str
    ignore_case: bool = False
    context: int = 0
    max_matches: int
    """The limit per file."""

    @property
    def pattern(self) -> re2.Pattern[bytes]:
        return compile_regex(self.expression, ignore_case=self.ignore_case)


class MatchedLine(Struct, frozen=True):
    number: int
    text: bytes
    is_match: bool


class OpenSource(Struct, frozen=True):
    path: str
    opened: int


SearchHits: TypeAlias = dict[str, list[MatchedLine]]
"""By the path of each file with matches; in the order of the files, and of their lines."""


def find_ripgreps() -> list[str]:
    """The system's ripgrep, then the one in the `ripgrep` wheel."""
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    folders = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    paths = [shutil.which("rg"), *(shutil.which("rg", path=folder) for folder in folders)]
    return list(dict.fromkeys(path for path in paths if path is not None))


def is_searchable(opened: int) -> bool:
    """Whether the file is text, and not too large to search."""
    if os.fstat(opened).st_size > MAX_FILE_BYTES:
        return False
    start = os.pread(opened, _SNIFFED_BYTES, 0)
    return start.startswith(_WIDE) or b"\0" not in start


async def search(
    query: SearchQuery, sources: Sequence[OpenSource], ripgrep: str | None
) -> SearchHits:
    if ripgrep is not None and not _names_ends(query.expression):
        hits = await _search_with_ripgrep(ripgrep, query, sources)
        if hits is not None:
            return hits
    return await to_thread.run_sync(_search_in_python, query, sources)


def _search_in_python(query: SearchQuery, sources: Sequence[OpenSource]) -> SearchHits:
    pattern = query.pattern
    anywhere = _multiline_pattern(query)
    hits: SearchHits = {}
    for source in sources:
        content = _content(source.opened)
        if anywhere is not None and anywhere.search(content) is None:
            continue
        if lines := list(_matching(content, pattern, query)):
            hits[source.path] = lines
    return hits


def _names_ends(expression: str) -> bool:
    """Whether an expression has anchors of the text, which mean a line to us and a file to
    ripgrep."""
    return "\\A" in expression or "\\z" in expression


def _multiline_pattern(query: SearchQuery) -> re2.Pattern[bytes] | None:
    """A pattern for the whole file that finds at least what single lines contain: most files have
    no match."""
    if _names_ends(query.expression) or "(?" in query.expression:
        return None
    return compile_regex(f"(?m){query.expression}", ignore_case=query.ignore_case)


def _content(opened: int) -> bytes:
    """The content as UTF-8 with LF line ends, as far as it can be decoded."""
    with os.fdopen(os.dup(opened), "rb") as file:
        content = file.read(MAX_FILE_BYTES)
    if content.startswith(_WIDE):
        content = content.decode("utf-16", "replace").encode("utf-8", "replace")
    return content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")


def _matching(
    content: bytes, pattern: re2.Pattern[bytes], query: SearchQuery
) -> Iterator[MatchedLine]:
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    matches_at: list[int] = []
    for at, line in enumerate(lines):
        if pattern.search(line) is not None:
            matches_at.append(at)
            if len(matches_at) == query.max_matches:
                break
    matches = set(matches_at)
    around = {
        near
        for at in matches_at
        for near in range(max(0, at - query.context), min(len(lines), at + query.context + 1))
    }
    for at in sorted(around):
        yield MatchedLine(at + 1, lines[at], at in matches)


async def _search_with_ripgrep(
    program: str, query: SearchQuery, sources: Sequence[OpenSource]
) -> SearchHits | None:
    """`None` if ripgrep fails."""
    argv = [
        program,
        *("--no-config", "--no-ignore", "--hidden", "--text", "--crlf", "--no-mmap"),
        *("--color=never", "--no-heading", "--with-filename", "--line-number", "--null"),
        f"--max-count={query.max_matches}",
        f"--context={query.context}",
        "--ignore-case" if query.ignore_case else "--case-sensitive",
        f"--regexp={query.expression}",
        "--",
        *(f"{_DESCRIPTORS}/{source.opened}" for source in sources),
    ]
    opened = [source.opened for source in sources]
    async with AsyncExitStack() as stack:
        try:
            started = start_process(argv, cwd="/", env={}, pass_fds=opened)
            process = await stack.enter_async_context(started)
        except OSError:
            return None
        output, status = await _output(process)
    if status not in (0, 1, None):
        return None
    return _parse_output(output, {str(source.opened): source.path for source in sources}, sources)


async def _output(process: Process) -> tuple[bytes, int | None]:
    """The output and exit status; `None` if there is too much output, and it is killed."""
    assert process.stdout is not None
    pieces: list[bytes] = []
    size = 0
    async for piece in process.stdout:
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_OUTPUT_BYTES:
            whole, _, _ = b"".join(pieces).rpartition(b"\n")
            return whole, None
    return b"".join(pieces), await process.wait()


def _parse_output(
    output: bytes, paths: dict[str, str], sources: Sequence[OpenSource]
) -> SearchHits:
    """Parse `/dev/fd/7\\0` + `12:text` for a match, `12-text` for context."""
    hits: SearchHits = {}
    for line in output.split(b"\n"):
        name, is_line, remainder = line.partition(b"\0")
        if not is_line:
            continue  # separates two parts of a file
        number = remainder[: len(remainder) - len(remainder.lstrip(b"0123456789"))]
        sign, text = remainder[len(number) : len(number) + 1], remainder[len(number) + 1 :]
        path = paths[name.rpartition(b"/")[2].decode()]
        line = MatchedLine(int(number), text.removesuffix(b"\r"), sign == b":")
        hits.setdefault(path, []).append(line)
    return {source.path: hits[source.path] for source in sources if source.path in hits}
