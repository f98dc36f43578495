"""The tool `glob`: files by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from anyio import to_thread

from mainspring.capabilities.tools.define import tool
from mainspring.capabilities.tools.globs import matcher
from mainspring.capabilities.tools.session_files import SessionFiles, refused
from mainspring.core.errors import HandsError, InvalidInput
from mainspring.core.hands import Entry, Workspace
from mainspring.core.tool import Call, Outcome, Tool

VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
"""Entered only when they are where the search begins."""
MAX_WALKED = 200_000
_MAX_FOUND = 1000


def glob_tool(files: SessionFiles) -> Tool:
    @tool(read_only=True, concurrent=True, max_chars=100_000)
    async def glob(pattern: str, path: str = ".") -> Outcome:
        """Find files by name, the newest first.

        Args:
            pattern: `**` spans folders and {a,b} chooses, as in `src/**/*.{ts,tsx}`; a pattern
                without a slash, as `*.py`, finds files in any folder.
            path: The folder to look in; the whole workspace, unless given.
        """
        try:
            found = await files.workspace.walk(path, limit=MAX_WALKED, skip=VERSION_CONTROL)
            wanted = await to_thread.run_sync(_wanted, files.workspace, path, pattern, found)
        except (HandsError, InvalidInput) as error:
            return refused(error)
        return Outcome.text(_told(wanted, is_cut=len(found) == MAX_WALKED))

    def invalid(given: Mapping[str, object]) -> str | None:
        return glob.invalid(given) or wrong_glob(given.get("pattern"))

    async def objection(call: Call) -> str | None:
        return files.unreachable(str(call.input.get("path", ".")))

    judged = partial(files.judged, field="path")
    return replace(glob, invalid=invalid, objection=objection, judged=judged)


def wrong_glob(glob: object) -> str | None:
    try:
        matcher(str(glob))
    except InvalidInput as error:
        return str(error)
    return None


def names_below(workspace: Workspace, path: str, found: list[Entry]) -> list[tuple[str, Entry]]:
    """Each file with its path from where the search began."""
    begun = workspace.locate(path)
    if begun.is_relative_to(workspace.root):
        begun = begun.relative_to(workspace.root)
    skip = 0 if str(begun) == "." else len(str(begun)) + 1
    return [(str(entry.path)[skip:], entry) for entry in found if not entry.is_folder]


def _wanted(workspace: Workspace, path: str, pattern: str, found: list[Entry]) -> list[Entry]:
    is_meant = matcher(pattern)
    meant = [entry for name, entry in names_below(workspace, path, found) if is_meant(name)]
    return sorted(meant, key=lambda entry: (-entry.modified_ns, str(entry.path)))


def _told(wanted: list[Entry], *, is_cut: bool) -> str:
    lines = [printable(str(entry.path)) for entry in wanted[:_MAX_FOUND]]
    if len(wanted) > _MAX_FOUND:
        lines.append(f"[the newest {_MAX_FOUND:,} of {len(wanted):,}; narrow the pattern]")
    if is_cut:
        lines.append(f"[only the first {MAX_WALKED:,} files were looked at; say a path]")
    return "\n".join(lines) if wanted or is_cut else "No file has such a name."


def printable(path: str) -> str:
    """A path on one line, also one that a hostile program has made."""
    return path if path.isprintable() else ascii(path)
