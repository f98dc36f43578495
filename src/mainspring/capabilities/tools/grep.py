"""The tool `grep` finds lines of files by a regular expression."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Literal, TypeAlias

import anyio
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.tools.file_search import (
    MatchedLine,
    OpenSource,
    SearchQuery,
    compile_regex,
    is_searchable,
    search,
)
from mainspring.capabilities.tools.glob import (
    MAX_WALKED,
    VERSION_CONTROL,
    compile_search,
    glob_error,
    printable_path,
    relative_names,
)
from mainspring.capabilities.tools.session_files import SessionFiles, failed_result
from mainspring.core.errors import InvalidInput, IsFolder, ToolEnvironmentError
from mainspring.core.ports import Workspace
from mainspring.core.tool import Tool, ToolResult
from mainspring.function_tools.define import tool

Mode: TypeAlias = Literal["content", "files_with_matches", "count"]

TIME_LIMIT_SECONDS = 20.0  # a person waits; the answer says that the search was stopped
MAX_LINES = 2000  # of an answer, before its limit in characters
_MAX_MATCHES = {"content": MAX_LINES, "files_with_matches": 1, "count": 1_000_000}
_MAX_CONTEXT = 20  # lines around a match
_MAX_LINE_CHARS = 500  # longer lines are minified code
_BATCH_FILES = 200
"""How many files are open at a time."""


class _FileMatches(Struct, frozen=True):
    path: str
    lines: list[MatchedLine]


FindRipgrep: TypeAlias = Callable[[], str | None]
"""The path of the program, never one from the workspace; without it, the search runs in Python."""


def grep_tool(files: SessionFiles, find_ripgrep: FindRipgrep) -> Tool:
    @tool(read_only=True, concurrent=True, max_chars=100_000)
    async def grep(
        pattern: str,
        path: str = ".",
        glob: str | None = None,
        output_mode: Mode = "content",
        context: int = 0,
        ignore_case: bool = False,
    ) -> ToolResult:
        """Search the text of files, line by line.

        Args:
            pattern: A regular expression (RE2: no look-around, no back-references).
            path: A file or folder to search; by default the whole workspace.
            glob: Search only files whose names match, such as `*.py` or `src/**/*.ts`.
            output_mode: The matching lines, or only the names of the files that have some, or how
                many lines each has.
            context: How many lines to show before and after each match.
            ignore_case: Take capital and small letters for the same.
        """
        query = SearchQuery(
            expression=pattern,
            ignore_case=ignore_case,
            context=min(max(context, 0), _MAX_CONTEXT) if output_mode == "content" else 0,
            max_matches=_MAX_MATCHES[output_mode],
        )
        lines = _Lines(output_mode)
        try:
            with anyio.move_on_after(TIME_LIMIT_SECONDS) as limit:
                paths = await _paths(files.workspace, path, glob)
                ripgrep = await to_thread.run_sync(find_ripgrep)
                async with aclosing(
                    _search_files(files.workspace, query, paths, ripgrep)
                ) as file_matches:
                    async for item in file_matches:
                        if not lines.take(item):
                            break
        except (ToolEnvironmentError, InvalidInput) as error:
            return failed_result(error)
        return lines.outcome(is_late=limit.cancelled_caught)

    def invalid(args: Mapping[str, object]) -> str | None:
        return grep.invalid(args) or _input_error(args)

    return files.reading_tool(replace(grep, invalid=invalid), "path")


def _input_error(args: Mapping[str, object]) -> str | None:
    expression = str(args["pattern"])
    if "\n" in expression or "\\n" in expression.replace("\\\\", ""):
        return "the pattern contains a line break, but the search is line by line"
    try:
        compile_regex(expression)
    except InvalidInput as error:
        return str(error)
    return None if args.get("glob") is None else glob_error(args["glob"])


async def _paths(workspace: Workspace, path: str, glob: str | None) -> list[str]:
    try:
        os.close(await to_thread.run_sync(workspace.open_file, path))
    except IsFolder:
        pass
    else:
        return [path]
    file_entries = await workspace.walk(path, limit=MAX_WALKED, skip=VERSION_CONTROL)
    matches: Callable[[str], bool] = (lambda _: True) if glob is None else compile_search(glob)
    below = relative_names(workspace, path, file_entries)
    return [str(entry.path) for name, entry in below if not entry.is_link and matches(name)]


async def _search_files(
    workspace: Workspace, query: SearchQuery, paths: Sequence[str], ripgrep: str | None
) -> AsyncGenerator[_FileMatches]:
    for start in range(0, len(paths), _BATCH_FILES):
        batch = paths[start : start + _BATCH_FILES]
        sources = await to_thread.run_sync(_open_files, workspace, batch)
        try:
            hits = await search(query, sources, ripgrep)
        finally:
            for source in sources:
                os.close(source.opened)
        for path, lines in hits.items():
            yield _FileMatches(path, lines)


def _open_files(workspace: Workspace, paths: Sequence[str]) -> list[OpenSource]:
    sources: list[OpenSource] = []
    for path in paths:
        try:
            descriptor = workspace.open_file(path)
        except ToolEnvironmentError:
            continue  # removed, or not accessible
        if is_searchable(descriptor):
            sources.append(OpenSource(path, descriptor))
        else:
            os.close(descriptor)
    return sources


class _Lines:
    """Collects the result."""

    def __init__(self, mode: Mode) -> None:
        self._mode: Mode = mode
        self._lines: list[str] = []
        self._is_full = False

    def take(self, matches: _FileMatches) -> bool:
        """Add a file's matches; whether there is room for more."""
        path = printable_path(matches.path)
        if self._mode == "files_with_matches":
            self._lines.append(path)
        elif self._mode == "count":
            self._lines.append(f"{path}:{sum(line.is_match for line in matches.lines)}")
        else:
            self._lines += _format_lines(path, matches.lines, is_first=not self._lines)
        self._is_full = len(self._lines) > MAX_LINES
        return not self._is_full

    def outcome(self, *, is_late: bool) -> ToolResult:
        lines = self._lines[:MAX_LINES]
        if self._is_full:
            lines.append(f"[more than {MAX_LINES:,} lines; narrow the pattern, path or glob]")
        if is_late:
            lines.append(
                f"[stopped after {TIME_LIMIT_SECONDS:g} s, before all files were searched;"
                " give a path or a glob]"
            )
        text = "\n".join(lines) or "No line matches."
        failed = is_late and not self._lines
        return ToolResult.text(text, ok=not failed, error="timed_out" if failed else None)


def _format_lines(path: str, lines: Sequence[MatchedLine], *, is_first: bool) -> list[str]:
    """The format of grep: `path:12:text`, `path-13-text` around a match, `--` between parts."""
    has_context = any(not line.is_match for line in lines)
    formatted: list[str] = [] if is_first or not has_context else ["--"]
    before = lines[0].number - 1
    for line in lines:
        if has_context and line.number != before + 1:
            formatted.append("--")
        before = line.number
        sign = ":" if line.is_match else "-"
        formatted.append(f"{path}{sign}{line.number}{sign}{_text(line.text)}")
    return formatted


def _text(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    over = len(text) - _MAX_LINE_CHARS
    return text if over <= 0 else f"{text[:_MAX_LINE_CHARS]} [{over:,} more characters]"
