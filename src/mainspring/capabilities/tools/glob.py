"""The tool `glob` finds files by name, with ripgrep's globs (`**` spans folders, `{a,b}` chooses, a
bare name matches at any depth)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from anyio import to_thread

from mainspring.capabilities.tools.session_files import SessionFiles, failed_result
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.ports import FileEntry, Workspace
from mainspring.core.tool import Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.retrieval.globs import CharClass, Segment, expand_braces, glob_segments, spans

_MAX_CHARS = 1000  # of a pattern
_OPEN_BRACE = re.compile(r"(?<!\\)\{[^}]*$")


def compile_search(glob: str) -> Callable[[str], bool]:
    """A function that tests whether a path, relative to the start of the search, matches a glob.

    Raises:
        InvalidInput: it is not a valid glob.
    """
    if not glob or len(glob) > _MAX_CHARS:
        raise InvalidInput(f"a glob has 1 to {_MAX_CHARS} characters")
    if glob.startswith(("/", "~")) or ".." in glob.split("/"):
        raise InvalidInput("a glob is relative: use `path` for the start folder")
    patterns = [_segments(choice) for choice in expand_braces(glob.removeprefix("./"))]
    return lambda path: any(spans(segments, path.split("/")) for segments in patterns)


def _segments(glob: str) -> tuple[Segment, ...]:
    if _OPEN_BRACE.search(glob):
        raise InvalidInput(f"the glob {glob} has a brace that is not closed")
    anywhere = "" if "/" in glob.rstrip("/") else "**/"
    below = "**" if glob.endswith("/") else ""
    segments = glob_segments(f"{anywhere}{glob}{below}".split("/"))
    classes = [item for part in segments for item in part.tokens if isinstance(item, CharClass)]
    if any(low > high for item in classes for low, high in item.ranges):
        raise InvalidInput(f"the glob {glob} has a range that ends before it begins")
    return segments


VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
"""Folders that are searched only if the search starts in them."""
MAX_WALKED = 200_000  # paths; with more, the answer says that the rest was not searched
_MAX_RESULTS = 1000  # paths, about 15,000 tokens


def glob_tool(files: SessionFiles) -> Tool:
    @tool(read_only=True, concurrent=True, max_chars=100_000)
    async def glob(pattern: str, path: str = ".") -> ToolResult:
        """Find files by name, the newest first.

        Args:
            pattern: `**` spans folders and {a,b} chooses, as in `src/**/*.{ts,tsx}`; a pattern
                without a slash, as `*.py`, finds files in any folder.
            path: The folder to search; by default the whole workspace.
        """
        try:
            entries = await files.workspace.walk(path, limit=MAX_WALKED, skip=VERSION_CONTROL)
            matching = partial(_matching_entries, files.workspace, path, pattern, entries)
            file_entries = await to_thread.run_sync(matching)
        except (ToolEnvironmentError, InvalidInput) as error:
            return failed_result(error)
        return ToolResult.text(_listing(file_entries, is_cut=len(entries) == MAX_WALKED))

    def invalid(args: Mapping[str, object]) -> str | None:
        return glob.invalid(args) or glob_error(args.get("pattern"))

    return files.reading_tool(replace(glob, invalid=invalid), "path")


def glob_error(glob: object) -> str | None:
    try:
        compile_search(str(glob))
    except InvalidInput as error:
        return str(error)
    return None


def relative_names(
    workspace: Workspace, path: str, entries: list[FileEntry]
) -> list[tuple[str, FileEntry]]:
    """Each file with its path relative to the start of the search."""
    start = workspace.locate(path)
    if start.is_relative_to(workspace.root):
        start = start.relative_to(workspace.root)
    skip = 0 if str(start) == "." else len(str(start)) + 1
    return [(str(entry.path)[skip:], entry) for entry in entries if not entry.is_folder]


def _matching_entries(
    workspace: Workspace, path: str, pattern: str, entries: list[FileEntry]
) -> list[FileEntry]:
    matches = compile_search(pattern)
    file_entries = [
        entry for name, entry in relative_names(workspace, path, entries) if matches(name)
    ]
    return sorted(file_entries, key=lambda entry: (-entry.modified_ns, str(entry.path)))


def _listing(entries: list[FileEntry], *, is_cut: bool) -> str:
    lines = [printable_path(str(entry.path)) for entry in entries[:_MAX_RESULTS]]
    if len(entries) > _MAX_RESULTS:
        lines.append(f"[the newest {_MAX_RESULTS:,} of {len(entries):,}; narrow the pattern]")
    if is_cut:
        lines.append(f"[only the first {MAX_WALKED:,} files were searched; give a path]")
    return "\n".join(lines) if entries or is_cut else "No file matches."


def printable_path(path: str) -> str:
    """A path on one line, even one with characters that a hostile program chose."""
    return path if path.isprintable() else ascii(path)
