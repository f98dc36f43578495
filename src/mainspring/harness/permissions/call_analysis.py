"""Analysis of a call for the rules: which paths it accesses and what its shell command does."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

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
    """Where the shell stands; relative paths of commands begin there."""
    home: str
    resolve: Callable[[str], str]
    """Follow the links of an absolute path, whether it exists or not; `..` in it is the folder
    above what a link leads to. May raise `OSError` and `ValueError`, and nothing else."""
    is_folder: Callable[[str], bool] = lambda _: True
    others: tuple[str, ...] = ()
    """Where the shell may stand instead, because earlier commands went there."""
    is_known: bool = True
    """Whether it stands at one of these for sure."""
    names: Callable[[str], Collection[str]] = lambda _: ()
    """What is in a folder."""
    aliases: tuple[str, ...] = ()
    """Absolute paths that mean the workspace: in the sandbox they are links to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzedCall:
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
    """Folders that the command reads with all that is in them."""
    guesses: tuple[PathAccess, ...] = ()
    """What its words name, if they are files."""


def analyze_call(
    tool: str, given: Mapping[str, object], traits: Traits, call_location: CallLocation
) -> AnalyzedCall:
    """Never raises, whatever the input."""
    name = canonical_name(tool)
    if name not in SHELL_TOOLS:
        paths = tuple(_file_paths(name, given, call_location))
        named = (
            ()
            if name in _ON_FILES or traits.read_only
            else tuple(_possible_paths(given, call_location))
        )
        return AnalyzedCall(
            tool=name, input=given, traits=traits, paths=paths, surely_written=named
        )
    command = str(given.get("command", ""))
    bases = _bases(command, call_location)
    is_lost = len(bases) == _MAX_BASES or not call_location.is_known
    verdict = bash.analyze_command(
        command,
        roots=(call_location.workspace, *call_location.aliases),
        is_own_repository=lambda folder: not is_lost and _is_own_repository(folder, bases),
    )
    if is_lost:
        verdict = replace(verdict, opaque=True, hides_reads=True)
    if verdict.loads_modules and (is_lost or any(map(_has_modules, bases))):
        verdict = replace(verdict, read_only_in_sandbox=False)
    paths = [
        _path_access(path, "write" if path in verdict.writes else "read", base)
        for base in bases
        for path in dict.fromkeys((*verdict.paths, *verdict.writes))
    ]
    trees = [found for base in bases for path in verdict.trees for found in _trees(path, base)]
    if not all(item.target for item in (*paths, *trees)):
        verdict = replace(verdict, opaque=True, hides_reads=True)
    removes = verdict.destructive and _removes(command)
    if removes and any(
        is_inside(call_location.workspace, (item.target,))
        for item in paths
        if item.access == "write"
    ):
        verdict = replace(verdict, critical=True)
    guesses = [_guessed_path(path, base) for base in bases for path in verdict.guesses]
    written = [
        _path_access(word, "write", base) for base in bases for word in bash.written_words(command)
    ]
    return AnalyzedCall(
        tool=name,
        input=given,
        traits=traits,
        paths=tuple(dict.fromkeys((*paths, *trees))),
        command=command,
        analysis=verdict,
        trees=tuple(
            dict.fromkeys(tree for tree in trees if not _is_file(tree.target, call_location))
        ),
        guesses=tuple(dict.fromkeys(guesses)),
        surely_written=tuple(dict.fromkeys(written)),
    )


def _trees(path: str, call_location: CallLocation) -> Iterator[PathAccess]:
    """A folder, and the workspace if a link in that folder leads there."""
    yield (touched := _path_access(path, "read", call_location))
    if any(is_inside(alias, touched.both) for alias in call_location.aliases):
        yield _path_access(call_location.workspace, "read", call_location)


def _is_file(path: str, call_location: CallLocation) -> bool:
    """What is not there may have been a folder: git knows what was in it."""
    folder, name = posixpath.split(path)
    return name in call_location.names(folder) and not call_location.is_folder(path)


def _guessed_path(path: str, call_location: CallLocation) -> PathAccess:
    named = absolute_path(path, cwd=call_location.cwd, home=call_location.home)
    link = without_alias(named, call_location.aliases, call_location.workspace)
    alias = "" if link == named else named
    return PathAccess(link=link, target=link, access="read", alias=alias)


def _is_own_repository(folder: str, bases: Sequence[CallLocation]) -> bool:
    """Whether git finds the workspace's own repository from a folder, wherever the shell stands:
    none of the folders on the way up may look like another."""
    return all(
        _leads_to_workspace(path, base)
        for base in bases
        for path in _path_access(folder or ".", "read", base).both
    )


def _leads_to_workspace(path: str, call_location: CallLocation) -> bool:
    if not is_inside(path, (call_location.workspace,)):
        return False
    while path != call_location.workspace:
        if _is_repository(call_location.names(path)):
            return False
        path = posixpath.dirname(path)
    found = call_location.names(path)
    return ".git" in found or not _is_repository(found)


def _is_repository(found: Collection[str]) -> bool:
    """With `.git`, or as git keeps one without a work tree."""
    return ".git" in found or ("HEAD" in found and ("objects" in found or "commondir" in found))


def _has_modules(call_location: CallLocation) -> bool:
    found = call_location.names(call_location.cwd)
    return any(item.partition(".")[0] in _MODULES for item in found)


def location_after(commands: Sequence[str], call_location: CallLocation) -> CallLocation:
    """The place, when these commands may have been run in any order: a shell stays where it went,
    as long as that is a folder of the workspace."""
    stands = [call_location.cwd]
    for base in stands:  # grows while it is gone through
        at = replace(call_location, cwd=base, others=())
        for command in commands:
            for went in (went for target in _targets(command) for went in _cd_targets(at, target)):
                real = without_alias(went, call_location.aliases, call_location.workspace)
                is_new = went not in stands and is_inside(real, (call_location.workspace,))
                if is_new and len(stands) < _MAX_BASES and call_location.is_folder(real):
                    stands.append(went)
    is_known = not any(map(_goes_anywhere, commands))
    return replace(call_location, others=tuple(stands[1:]), is_known=is_known)


def _bases(command: str, call_location: CallLocation) -> list[CallLocation]:
    """Where the shell may stand while a command runs: each `cd` is taken or not."""
    bases = [
        replace(call_location, cwd=cwd, others=())
        for cwd in (call_location.cwd, *call_location.others)
    ]
    for target in _targets(command):
        known = [replace(base, cwd=went) for base in bases for went in _cd_targets(base, target)]
        bases = list(dict.fromkeys((*bases, *known)))[:_MAX_BASES]
    return bases


@lru_cache(maxsize=256)
def _targets(command: str) -> tuple[str, ...]:
    """Where a command goes."""
    return tuple(
        (item.words[-1].value if len(item.words) > 1 else "~") or ""
        for item in bash.parse_commands(command).commands
        if item.name in ("cd", "pushd")
    )


@lru_cache(maxsize=256)
def _goes_anywhere(command: str) -> bool:
    """Whether only the shell can tell where a command goes."""
    found = bash.parse_commands(command)
    return isinstance(found, bash.UnclearCommands) or any(
        item.name in _UNPREDICTABLE
        or (item.name in ("cd", "pushd") and any(word.value is None for word in item.words))
        for item in found.commands
    )


def _cd_targets(base: CallLocation, target: str) -> tuple[str, ...]:
    """Where `cd` goes: by its words, and with `..` perhaps by the links (`cd -P`). Behind an alias
    the shell may stand by either name: `..` of the one is not that of the other."""
    touched = _path_access(target, "read", base)
    is_plain = ".." not in target.split("/") or not touched.target
    names = (touched.link,) if is_plain else touched.both
    return tuple(dict.fromkeys((*names, touched.alias) if touched.alias else names))


@lru_cache(maxsize=256)
def _removes(command: str) -> bool:
    return any(
        posixpath.basename(item.name) in bash.REMOVING
        for item in bash.parse_commands(command).commands
    )


def _file_paths(
    tool: str, given: Mapping[str, object], call_location: CallLocation
) -> Iterator[PathAccess]:
    if tool not in _ON_FILES:
        return
    access: Access = "write" if tool in EDIT_TOOLS else "read"
    listed = given.get("paths")
    several = cast("list[object]", listed) if isinstance(listed, list) else []
    every = [*(given.get(field) for field in _FIELDS), *several]
    named = [path for path in every if isinstance(path, str) and path]
    is_search = tool in _SEARCHES
    if is_search and not named:
        named = [call_location.workspace]
    if tool == "glob":
        begin = _fixed_part(str(given.get("pattern", "")))
        named = [posixpath.join(path, begin) for path in named]
    for path in named:
        whole = posixpath.join(call_location.workspace, path) if not path.startswith("~") else path
        yield _path_access(whole, access, call_location, is_folder=is_search)


def _possible_paths(
    given: Mapping[str, object], call_location: CallLocation
) -> Iterator[PathAccess]:
    """What may be a path in the input of a tool that is not known: an MCP server may write it."""
    pending: list[object] = [given]
    for value in pending:  # grows while it is gone through
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, object]", value)
            pending += (*fields.keys(), *fields.values())
        elif isinstance(value, list):
            pending += cast("list[object]", value)
        elif isinstance(value, str) and 0 < len(path := value.strip()) <= _LONGEST_PATH:
            is_prose = "\n" in path and ".." not in path.split("/")
            if _FILE_URL.match(path):
                yield _path_access(unquote(_FILE_URL.sub("", path)), "write", call_location)
            elif not is_prose:
                yield _path_access(path, "write", call_location)


def _fixed_part(pattern: str) -> str:
    """How a glob begins, up to the first folder that is not spelled out."""
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
    path: str, access: Access, call_location: CallLocation, *, is_folder: bool = False
) -> PathAccess:
    named = absolute_path(path, cwd=call_location.cwd, home=call_location.home)
    link = without_alias(named, call_location.aliases, call_location.workspace)
    try:
        found = call_location.resolve(
            joined_path(path, cwd=call_location.cwd, home=call_location.home)
        )
        target = without_alias(found, call_location.aliases, call_location.workspace)
    except (OSError, ValueError):
        target = ""
    alias = "" if link == named else named
    return PathAccess(link=link, target=target, access=access, is_folder=is_folder, alias=alias)
