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

_MAX_BASES = 16
_LONGEST_PATH = 4096
_FILE_URL = re.compile(r"file:(?://(?:localhost(?=/))?)?", re.IGNORECASE)
_FIELDS = ("file_path", "notebook_path", "path")
_UNPREDICTABLE = frozenset((".", "eval", "popd", "source"))
"""They take the shell elsewhere, and do not say where."""
_MODULES = sys.stdlib_module_names | {"pip"}
"""What `python -m` may load, of the commands that are taken to only look."""
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
    """Follow the links of an absolute path, whether it exists or not; `..` in it is the folder
    above what a link leads to. May raise `OSError` and `ValueError`, and nothing else."""
    is_folder: Callable[[str], bool] = lambda _: True
    others: tuple[str, ...] = ()
    """Other folders the shell may be in, because earlier commands changed to them."""
    is_known: bool = True
    """Whether the shell is certainly in one of these folders."""
    names: Callable[[str], Collection[str]] = lambda _: ()
    """What is in a folder."""
    aliases: tuple[str, ...] = ()
    """Absolute paths that lead to the workspace: in the sandbox they are links to it."""


class AnalyzedCall(Struct, frozen=True, kw_only=True):
    tool: str
    input: Mapping[str, object]
    """As gates see it."""
    traits: Traits
    paths: tuple[PathAccess, ...] = ()
    command: str | None = None
    analysis: bash.CommandAnalysis | None = None
    """On the command, if there is one."""
    surely_written: tuple[PathAccess, ...] = ()
    """What the words of a command say that it changes, which is the least that it may change; of a
    tool that is not ours, whatever in its input may be a path."""
    trees: tuple[PathAccess, ...] = ()
    """Folders that the command reads recursively."""
    guesses: tuple[PathAccess, ...] = ()
    """Words of the command that may name files."""


def analyze_call(
    tool: str, values: Mapping[str, object], traits: Traits, location: CallLocation
) -> AnalyzedCall:
    """Never raises, whatever the input."""
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
    yield (touched := _path_access(path, "read", location))
    if any(is_inside(alias, touched.both) for alias in location.aliases):
        yield _path_access(location.workspace, "read", location)


def _is_file(path: str, location: CallLocation) -> bool:
    """A path that does not exist may have been a folder: git knows what was in it."""
    folder, name = posixpath.split(path)
    return name in location.names(folder) and not location.is_folder(path)


def _guessed_path(path: str, location: CallLocation) -> PathAccess:
    absolute = absolute_path(path, cwd=location.cwd, home=location.home)
    link = without_alias(absolute, location.aliases, location.workspace)
    alias = "" if link == absolute else absolute
    return PathAccess(link=link, target=link, access="read", alias=alias)


def _is_own_repository(folder: str, bases: Sequence[CallLocation]) -> bool:
    """Whether git finds the workspace's own repository from a folder, wherever the shell stands:
    none of the folders on the way up may look like another."""
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
    """With `.git`, or as git keeps one without a work tree."""
    return ".git" in names or ("HEAD" in names and ("objects" in names or "commondir" in names))


def _has_modules(location: CallLocation) -> bool:
    names = location.names(location.cwd)
    return any(item.partition(".")[0] in _MODULES for item in names)


def location_after(commands: Sequence[str], location: CallLocation) -> CallLocation:
    """The location after these commands ran, in any order: a shell stays in the folder that it
    changed to, as long as that is in the workspace."""
    stands = [location.cwd]
    for base in stands:  # grows while it is gone through
        at = replace(location, cwd=base, others=())
        for command in commands:
            targets = _targets(bash.parse_commands(command).commands)
            for folder in (folder for target in targets for folder in _cd_targets(at, target)):
                real = without_alias(folder, location.aliases, location.workspace)
                is_new = folder not in stands and is_inside(real, (location.workspace,))
                if is_new and len(stands) < _MAX_BASES and location.is_folder(real):
                    stands.append(folder)
    is_known = not any(map(_goes_anywhere, commands))
    return replace(location, others=tuple(stands[1:]), is_known=is_known)


def _bases(commands: Sequence[bash.Command], location: CallLocation) -> list[CallLocation]:
    """The folders the shell may be in while a command runs: each `cd` may take effect or not."""
    bases = [replace(location, cwd=cwd, others=()) for cwd in (location.cwd, *location.others)]
    for target in _targets(commands):
        entered = [replace(base, cwd=cwd) for base in bases for cwd in _cd_targets(base, target)]
        bases = list(dict.fromkeys((*bases, *entered)))[:_MAX_BASES]
    return bases


def _targets(commands: Sequence[bash.Command]) -> list[str]:
    targets = [target for command in commands if (target := command.cd_target) is not None]
    return ["~" if target is bash.HOME else target.value or "" for target in targets]


def _goes_anywhere(command: str) -> bool:
    """Whether only the shell can tell where a command goes."""
    parsed = bash.parse_commands(command)
    return isinstance(parsed, bash.UnclearCommands) or any(
        item.name in _UNPREDICTABLE
        or (item.cd_target is not None and any(word.value is None for word in item.words))
        for item in parsed.commands
    )


def _cd_targets(base: CallLocation, target: str) -> tuple[str, ...]:
    """Where `cd` goes: by its words, and for `..` also through links (`cd -P`). Below an alias the
    shell may use either name, and their `..` differ."""
    touched = _path_access(target, "read", base)
    is_plain = ".." not in target.split("/") or not touched.target
    names = (touched.link,) if is_plain else touched.both
    return tuple(dict.fromkeys((*names, touched.alias) if touched.alias else names))


def _file_paths(
    tool: str, values: Mapping[str, object], location: CallLocation
) -> Iterator[PathAccess]:
    if tool not in _ON_FILES:
        return
    access: Access = "write" if tool in EDIT_TOOLS else "read"
    listed = values.get("paths")
    several = cast("list[object]", listed) if isinstance(listed, list) else []
    every = [*(values.get(field) for field in _FIELDS), *several]
    paths = [path for path in every if isinstance(path, str) and path]
    is_search = tool in _SEARCHES
    if is_search and not paths:
        paths = [location.workspace]
    if tool == "glob":
        begin = _fixed_part(str(values.get("pattern", "")))
        paths = [posixpath.join(path, begin) for path in paths]
    for path in paths:
        whole = posixpath.join(location.workspace, path) if not path.startswith("~") else path
        yield _path_access(whole, access, location, is_folder=is_search)


def _possible_paths(values: Mapping[str, object], location: CallLocation) -> Iterator[PathAccess]:
    """Possible paths in the input of an unknown tool: an MCP server may write to them."""
    pending: list[object] = [values]
    for value in pending:  # grows while it is gone through
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
