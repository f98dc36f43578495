"""Analysis of a call for the rules: which paths it accesses and what its shell command does."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from msgspec import Struct

from mainspring.core.lazy_module import LazyModule
from mainspring.core.tool import Traits
from mainspring.harness.permissions.path_rules import (
    Access,
    PathAccess,
    absolute_path,
    is_inside,
    joined_path,
    without_alias,
)
from mainspring.harness.permissions.tool_names import (
    EDIT_TOOLS,
    READ_TOOLS,
    SHELL_TOOLS,
    canonical_name,
)

if TYPE_CHECKING:
    from mainspring.harness.permissions import bash
else:
    bash = LazyModule("mainspring.harness.permissions.bash")  # a tenth of the time to start

_MAX_BASES = 16  # folders that a relative path may be below
_LONGEST_PATH = 4096  # the kernel's PATH_MAX
_FILE_URL = re.compile(r"file:(?://(?:localhost(?=/))?)?", re.IGNORECASE)
_FIELDS = ("file_path", "notebook_path", "path")
_UNPREDICTABLE = frozenset((".", "eval", "popd", "source"))
"""Commands that may change the folder of the shell without naming the new one."""
_MODULES = sys.stdlib_module_names | {"pip"}
"""Modules that `python -m` may load in commands that count as read-only."""
_SEARCHES = frozenset(("glob", "grep"))
_ON_FILES = READ_TOOLS | EDIT_TOOLS | {"artifact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLocation:
    """Where a call would run."""

    workspace: str
    cwd: str
    """The shell's current folder; relative paths in commands start there."""
    home: str
    resolve: Callable[[str], str]
    """Resolves the links of an absolute path, which need not exist; `..` after a link means the
    parent of its target. May raise only `OSError` and `ValueError`."""
    is_folder: Callable[[str], bool] = lambda _: True
    others: tuple[str, ...] = ()
    """Other folders the shell may be in, because earlier commands changed to them."""
    is_known: bool = True
    """Whether the shell is certainly in one of these folders."""
    names: Callable[[str], Collection[str]] = lambda _: ()
    """The names of the entries of a folder."""
    aliases: tuple[str, ...] = ()
    """Absolute paths that are links to the workspace in the sandbox."""


class AnalyzedCall(Struct, frozen=True, kw_only=True):
    tool: str
    input: Mapping[str, object]
    """The normalized input."""
    traits: Traits
    paths: tuple[PathAccess, ...] = ()
    command: str | None = None
    analysis: bash.CommandAnalysis | None = None
    """The analysis of the command, if there is one."""
    surely_written: tuple[PathAccess, ...] = ()
    """Paths that the words of a command say it changes; it may change more. For a tool that is not
    ours, everything in its input that may be a path."""
    trees: tuple[PathAccess, ...] = ()
    """Folders that the command reads recursively."""
    guesses: tuple[PathAccess, ...] = ()
    """Words of the command that may name files."""


def analyze_call(
    tool: str, values: Mapping[str, object], traits: Traits, location: CallLocation
) -> AnalyzedCall:
    """Analyze a call. Never raises, whatever the input."""
    name = canonical_name(tool)
    if name not in SHELL_TOOLS:
        paths = tuple(_file_paths(name, values, location))
        is_harmless = name in _ON_FILES or traits.read_only
        named_paths = () if is_harmless else tuple(_possible_paths(values, location))
        return AnalyzedCall(
            tool=name, input=values, traits=traits, paths=paths, surely_written=named_paths
        )
    command = str(values.get("command", ""))
    commands = bash.parse_commands(command).commands
    bases = _bases(commands, location)
    is_lost = len(bases) == _MAX_BASES or not location.is_known
    analysis = bash.analyze_command(
        command,
        roots=(location.workspace, *location.aliases),
        is_own_repository=lambda folder: not is_lost and _is_own_repository(folder, bases),
    )
    if is_lost:
        analysis = replace(analysis, opaque=True, hides_reads=True)
    if analysis.loads_modules and (is_lost or any(map(_has_modules, bases))):
        analysis = replace(analysis, read_only_in_sandbox=False)
    paths = [
        _path_access(path, "write" if path in analysis.writes else "read", base)
        for base in bases
        for path in dict.fromkeys((*analysis.paths, *analysis.writes))
    ]
    trees = [access for base in bases for path in analysis.trees for access in _trees(path, base)]
    if not all(item.target for item in (*paths, *trees)):
        analysis = replace(analysis, opaque=True, hides_reads=True)
    removes = any(posixpath.basename(item.name) in bash.REMOVING for item in commands)
    if (
        analysis.destructive
        and removes
        and any(
            is_inside(location.workspace, (item.target,))
            for item in paths
            if item.access == "write"
        )
    ):
        analysis = replace(analysis, critical=True)
    guesses = [_guessed_path(path, base) for base in bases for path in analysis.guesses]
    words = bash.written_words(commands)
    writes = [_path_access(word, "write", base) for base in bases for word in words]
    return AnalyzedCall(
        tool=name,
        input=values,
        traits=traits,
        paths=tuple(dict.fromkeys((*paths, *trees))),
        command=command,
        analysis=analysis,
        trees=tuple(dict.fromkeys(tree for tree in trees if not _is_file(tree.target, location))),
        guesses=tuple(dict.fromkeys(guesses)),
        surely_written=tuple(dict.fromkeys(writes)),
    )


def _trees(path: str, location: CallLocation) -> Iterator[PathAccess]:
    """A folder, and the workspace if a link in that folder leads there."""
    yield (access := _path_access(path, "read", location))
    if any(is_inside(alias, access.both) for alias in location.aliases):
        yield _path_access(location.workspace, "read", location)


def _is_file(path: str, location: CallLocation) -> bool:
    """Whether a path is a file. If it does not exist, it may have been a folder that git knows."""
    folder, name = posixpath.split(path)
    return name in location.names(folder) and not location.is_folder(path)


def _guessed_path(path: str, location: CallLocation) -> PathAccess:
    absolute = absolute_path(path, cwd=location.cwd, home=location.home)
    link = without_alias(absolute, location.aliases, location.workspace)
    alias = "" if link == absolute else absolute
    return PathAccess(link=link, target=link, access="read", alias=alias)


def _is_own_repository(folder: str, bases: Sequence[CallLocation]) -> bool:
    """Whether git finds the workspace's own repository from a folder, wherever the shell is: none
    of the folders on the way up may look like another repository."""
    return all(
        _leads_to_workspace(path, base)
        for base in bases
        for path in _path_access(folder or ".", "read", base).both
    )


def _leads_to_workspace(path: str, location: CallLocation) -> bool:
    if not is_inside(path, (location.workspace,)):
        return False
    while path != location.workspace:
        if _is_repository(location.names(path)):
            return False
        path = posixpath.dirname(path)
    names = location.names(path)
    return ".git" in names or not _is_repository(names)


def _is_repository(names: Collection[str]) -> bool:
    """Whether a folder has `.git`, or looks like a bare repository."""
    return ".git" in names or ("HEAD" in names and ("objects" in names or "commondir" in names))


def _has_modules(location: CallLocation) -> bool:
    names = location.names(location.cwd)
    return any(item.partition(".")[0] in _MODULES for item in names)


def location_after(commands: Sequence[str], location: CallLocation) -> CallLocation:
    """The location after these commands ran, in any order: a shell stays in the folder that it
    changed to, as long as that is in the workspace."""
    folders = [location.cwd]
    for base in folders:  # grows during the loop
        at = replace(location, cwd=base, others=())
        for command in commands:
            targets = _targets(bash.parse_commands(command).commands)
            for folder in (folder for target in targets for folder in _cd_targets(at, target)):
                real = without_alias(folder, location.aliases, location.workspace)
                is_new = folder not in folders and is_inside(real, (location.workspace,))
                if is_new and len(folders) < _MAX_BASES and location.is_folder(real):
                    folders.append(folder)
    is_known = not any(map(_goes_anywhere, commands))
    return replace(location, others=tuple(folders[1:]), is_known=is_known)


def _bases(commands: Sequence[bash.Command], location: CallLocation) -> list[CallLocation]:
    """The folders the shell may be in while a command runs: each `cd` may take effect or not."""
    bases = [replace(location, cwd=cwd, others=()) for cwd in (location.cwd, *location.others)]
    for target in _targets(commands):
        new_bases = [replace(base, cwd=cwd) for base in bases for cwd in _cd_targets(base, target)]
        bases = list(dict.fromkeys((*bases, *new_bases)))[:_MAX_BASES]
    return bases


def _targets(commands: Sequence[bash.Command]) -> list[str]:
    targets = [target for command in commands if (target := command.cd_target) is not None]
    return ["~" if target is bash.HOME else target.value or "" for target in targets]


def _goes_anywhere(command: str) -> bool:
    """Whether a command may change to a folder that its text does not show."""
    parsed = bash.parse_commands(command)
    return isinstance(parsed, bash.UnclearCommands) or any(
        item.name in _UNPREDICTABLE
        or (item.cd_target is not None and any(word.value is None for word in item.words))
        for item in parsed.commands
    )


def _cd_targets(base: CallLocation, target: str) -> tuple[str, ...]:
    """The folders that `cd` may change to: by its words, and for `..` also through links (`cd -P`).
    Below an alias the shell may use either name, and their `..` differ."""
    access = _path_access(target, "read", base)
    is_plain = ".." not in target.split("/") or not access.target
    names = (access.link,) if is_plain else access.both
    return tuple(dict.fromkeys((*names, access.alias) if access.alias else names))


def _file_paths(
    tool: str, values: Mapping[str, object], location: CallLocation
) -> Iterator[PathAccess]:
    if tool not in _ON_FILES:
        return
    access: Access = "write" if tool in EDIT_TOOLS else "read"
    path_list = values.get("paths")
    more_paths = cast("list[object]", path_list) if isinstance(path_list, list) else []
    candidates = [*(values.get(field) for field in _FIELDS), *more_paths]
    paths = [path for path in candidates if isinstance(path, str) and path]
    is_search = tool in _SEARCHES
    if is_search and not paths:
        paths = [location.workspace]
    if tool == "glob":
        prefix = _fixed_part(str(values.get("pattern", "")))
        paths = [posixpath.join(path, prefix) for path in paths]
    for path in paths:
        full_path = path if path.startswith("~") else posixpath.join(location.workspace, path)
        yield _path_access(full_path, access, location, is_folder=is_search)


def _possible_paths(values: Mapping[str, object], location: CallLocation) -> Iterator[PathAccess]:
    """Possible paths in the input of an unknown tool: an MCP server may write to them."""
    pending: list[object] = [values]
    for value in pending:  # grows during the loop
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, object]", value)
            pending += (*fields.keys(), *fields.values())
        elif isinstance(value, list):
            pending += cast("list[object]", value)
        elif isinstance(value, str) and 0 < len(path := value.strip()) <= _LONGEST_PATH:
            is_prose = "\n" in path and ".." not in path.split("/")
            if _FILE_URL.match(path):
                yield _path_access(unquote(_FILE_URL.sub("", path)), "write", location)
            elif not is_prose:
                yield _path_access(path, "write", location)


def _fixed_part(pattern: str) -> str:
    """The beginning of a glob, up to the first folder with a wildcard."""
    fixed: list[str] = []
    parts = pattern.split("/")
    for part in parts:
        if any(character in part for character in "*?[{"):
            break
        fixed.append(part)
    if ".." in parts[len(fixed) :]:
        return "/"  # it may lead anywhere
    return "/".join(fixed) or ("/" if pattern.startswith("/") else "")


def _path_access(
    path: str, access: Access, location: CallLocation, *, is_folder: bool = False
) -> PathAccess:
    absolute = absolute_path(path, cwd=location.cwd, home=location.home)
    link = without_alias(absolute, location.aliases, location.workspace)
    try:
        resolved = location.resolve(joined_path(path, cwd=location.cwd, home=location.home))
        target = without_alias(resolved, location.aliases, location.workspace)
    except (OSError, ValueError):
        target = ""
    alias = "" if link == absolute else absolute
    return PathAccess(link=link, target=target, access=access, is_folder=is_folder, alias=alias)
