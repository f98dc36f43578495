"""The tool `glob`: files by their names, with globs as ripgrep reads them (`**` spans folders,
`{a,b}` chooses, a bare name is at any depth).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from anyio import to_thread

from mainspring.capabilities.tools.define import tool
from mainspring.capabilities.tools.linear_regex import compile_regex
from mainspring.capabilities.tools.session_files import SessionFiles, failed_result
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.ports import FileEntry, Workspace
from mainspring.core.tool import Call, Tool, ToolResult

_MAX_CHARS = 1000


def glob_matcher(glob: str) -> Callable[[str], bool]:
    """Whether a path, relative to where the search begins, is meant by a glob.

    Raises:
        InvalidInput: it is not a glob.
    """
    if not glob or len(glob) > _MAX_CHARS:
        raise InvalidInput(f"a glob has 1 to {_MAX_CHARS} characters")
    if glob.startswith(("/", "~")) or ".." in glob.split("/"):
        raise InvalidInput("a glob is relative: use `path` for the start folder")
    bare = glob.removeprefix("./")
    anywhere = "" if "/" in bare.rstrip("/") else "**/"
    below = "**" if bare.endswith("/") else ""
    pattern = compile_regex(f"^{_expression(anywhere + bare + below)}$")
    return lambda path: pattern.search(path.encode("utf-8", "replace")) is not None


def _expression(glob: str) -> str:
    pieces: list[str] = []
    braces = at = 0
    while at < len(glob):
        piece, taken = _piece(glob[at:], braces)
        braces += (piece == "(?:") - (piece == ")")
        pieces.append(piece)
        at += taken
    if braces:
        raise InvalidInput(f"the glob {glob} has a brace that is not closed")
    return "".join(pieces)


def _piece(rest: str, braces: int) -> tuple[str, int]:
    """The expression for the beginning of a glob, and how much of the glob that is."""
    if rest.startswith("**/"):
        return "(?:.*/)?", 3
    if rest.startswith("**"):
        return ".*", 2
    if rest[0] == "[" and (end := rest.find("]", 2)) > 0:
        return _class(rest[1:end]), end + 1
    if rest[0] == "\\" and len(rest) > 1:
        return _literal(rest[1]), 2
    inside = {",": "|", "}": ")"} if braces else {}
    special = {"*": "[^/]*", "?": "[^/]", "{": "(?:", **inside}
    return special.get(rest[0]) or _literal(rest[0]), 1


def _class(inner: str) -> str:
    negated = inner[0] in "!^"
    members = inner[1:] if negated else inner
    quoted = "".join(member if member == "-" else _literal(member) for member in members)
    return f"[{'^/' if negated else ''}{quoted}]"


def _literal(character: str) -> str:
    return character if character.isalnum() or not character.isascii() else f"\\{character}"


VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
"""Entered only when they are where the search begins."""
MAX_WALKED = 200_000
_MAX_RESULTS = 1000


def glob_tool(files: SessionFiles) -> Tool:
    @tool(read_only=True, concurrent=True, max_chars=100_000)
    async def glob(pattern: str, path: str = ".") -> ToolResult:
        """Find files by name, the newest first.

        Args:
            pattern: `**` spans folders and {a,b} chooses, as in `src/**/*.{ts,tsx}`; a pattern
                without a slash, as `*.py`, finds files in any folder.
            path: The folder to look in; the whole workspace, unless given.
        """
        try:
            found = await files.workspace.walk(path, limit=MAX_WALKED, skip=VERSION_CONTROL)
            wanted = await to_thread.run_sync(
                _matching_entries, files.workspace, path, pattern, found
            )
        except (ToolEnvironmentError, InvalidInput) as error:
            return failed_result(error)
        return ToolResult.text(_listing(wanted, is_cut=len(found) == MAX_WALKED))

    def invalid(given: Mapping[str, object]) -> str | None:
        return glob.invalid(given) or glob_error(given.get("pattern"))

    async def objection(call: Call) -> str | None:
        return files.unreachable(str(call.input.get("path", ".")))

    normalize = partial(files.normalize_input, field="path")
    return replace(glob, invalid=invalid, objection=objection, normalize_input=normalize)


def glob_error(glob: object) -> str | None:
    try:
        glob_matcher(str(glob))
    except InvalidInput as error:
        return str(error)
    return None


def relative_names(
    workspace: Workspace, path: str, found: list[FileEntry]
) -> list[tuple[str, FileEntry]]:
    """Each file with its path from where the search began."""
    begun = workspace.locate(path)
    if begun.is_relative_to(workspace.root):
        begun = begun.relative_to(workspace.root)
    skip = 0 if str(begun) == "." else len(str(begun)) + 1
    return [(str(entry.path)[skip:], entry) for entry in found if not entry.is_folder]


def _matching_entries(
    workspace: Workspace, path: str, pattern: str, found: list[FileEntry]
) -> list[FileEntry]:
    is_meant = glob_matcher(pattern)
    meant = [entry for name, entry in relative_names(workspace, path, found) if is_meant(name)]
    return sorted(meant, key=lambda entry: (-entry.modified_ns, str(entry.path)))


def _listing(wanted: list[FileEntry], *, is_cut: bool) -> str:
    lines = [printable_path(str(entry.path)) for entry in wanted[:_MAX_RESULTS]]
    if len(wanted) > _MAX_RESULTS:
        lines.append(f"[the newest {_MAX_RESULTS:,} of {len(wanted):,}; narrow the pattern]")
    if is_cut:
        lines.append(f"[only the first {MAX_WALKED:,} files were searched; give a path]")
    return "\n".join(lines) if wanted or is_cut else "No file matches."


def printable_path(path: str) -> str:
    """A path on one line, also one that a hostile program has made."""
    return path if path.isprintable() else ascii(path)
