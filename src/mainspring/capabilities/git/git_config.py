"""Files of a workspace that git configurations name: git runs them or reads settings from them.

Configurations are untrusted text. Git itself parses them, from a pipe, without following includes;
it finds no repository there and runs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from anyio import to_thread
from msgspec import Struct, field

from mainspring.capabilities.git.untrusted_git import RunProgram, config_entries
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.files.atomic_file import read_bounded

_MAX_FILES = 100  # configurations read for one repository; more is an error
_MAX_WORDS = 200  # of one value that are looked up as files; later ones are not
_HARMLESS_SETTINGS = re.compile(
    r"(?:user|author|committer|color|branch|url|safe|extensions|pull|push|fetch|advice)\..*"
    r"|core\.(?:worktree|bare|repositoryformatversion|filemode|logallrefupdates|symlinks|ignorecase"
    r"|autocrlf|eol|safecrlf|precomposeunicode|excludesfile|abbrev|quotepath|longpaths|sharedrepository"
    r"|sparsecheckout|sparsecheckoutcone|protecthfs|protectntfs|commentchar|compression)"
    r"|remote\..*\.(?:url|pushurl|fetch|push|tagopt|mirror|prune|promisor|partialclonefilter)"
    r"|submodule\..*\.(?:url|active|path|branch|ignore|shallow)|submodule\.(?:active|recurse)",
    re.DOTALL,
)
"""Settings that run no program; any other may."""
_INCLUDES = re.compile(r"include\.path|includeif\..*\.path", re.DOTALL)
_PATH_SETTINGS = frozenset(("core.hookspath", "core.attributesfile", "init.templatedir"))
_WORDS = re.compile(r"[^\s'\"`;&|<>(){}=,$!]+")
_GIT_FOLDER = b"gitdir:"


class _Search(Struct):
    workspace: Path
    home: Path
    tree: Path
    """The working tree of the configuration, in which git runs programs."""
    run_program: RunProgram
    paths: dict[str, None]
    """Relative to the workspace, in order."""
    read: set[Path] = field(default_factory=set[Path])

    async def read_config(self, config: Path) -> None:
        """Read a configuration and those that it includes, whatever their conditions."""
        pending = [config]
        for item in pending:  # grows during the loop
            if item in self.read:
                continue
            if len(self.read) == _MAX_FILES:
                raise InvalidInput(f"{config}: includes over {_MAX_FILES} git configurations")
            self.read.add(item)
            content = await to_thread.run_sync(_read_config, item)
            try:
                entries = await config_entries(content, self.run_program) if content else []
            except ToolEnvironmentError as error:
                raise InvalidInput(f"{item}: {error}") from error
            pending += self._take(entries, item.parent)

    def _take(self, entries: Sequence[tuple[str, str]], folder: Path) -> list[Path]:
        """Add the paths in the settings of a file in `folder`; returns the files that they
        include."""
        included: list[Path] = []
        for name, value in entries:
            if name == "core.worktree":
                self.tree = Path(os.path.normpath(folder / value))
        for name, value in entries:
            if _INCLUDES.fullmatch(name):
                included.append(self._path(value, folder))
                self._add(included[-1])
            elif value and not _HARMLESS_SETTINGS.fullmatch(name):
                self._note(name, value)
        return included

    def _note(self, name: str, value: str) -> None:
        """Add everything in a shell command that looks like a file of the workspace."""
        if name in _PATH_SETTINGS:
            self._add(self._path(value, self.tree))
        words = _WORDS.findall(value)[:_MAX_WORDS]
        folders = [path for word in words if os.path.isdir(path := self._path(word, self.tree))]
        for word in (value.strip(), *words):
            for base in (self.tree, *folders):
                path = self._path(word, base)
                is_spelled = "/" in word.strip("/") and base == self.tree
                if os.path.isfile(path) or (is_spelled and not os.path.isdir(path)):
                    self._add(path)

    def _path(self, text: str, base: Path) -> Path:
        if text.startswith("~/"):
            return self.home / text[2:]
        return Path(os.path.normpath(base / text))

    def _add(self, path: Path) -> None:
        for item in (path, Path(os.path.realpath(path))):
            if item.is_relative_to(self.workspace) and item != self.workspace:
                self.paths[item.relative_to(self.workspace).as_posix()] = None


async def paths_named_by_git(
    workspace: Path,
    trees: Iterable[Path],
    folders: Iterable[Path],
    *,
    home: Path,
    run_program: RunProgram,
) -> tuple[str, ...]:
    """Paths relative to the workspace, existing or not, that are named by the configurations of
    working trees and of folders that git may take for a repository.

    Raises:
        InvalidInput: one cannot be read, so what it names is unknown.
    """
    paths: dict[str, None] = {}
    places = [(tree, folder) for tree in trees for folder in _git_folders(tree)]
    places += [(folder, folder) for folder in folders]
    for tree, folder in places:
        search = _Search(workspace, home, tree, run_program, paths)
        for config in _configurations(folder, home):
            await search.read_config(config)
    return tuple(paths)


def _read_config(config: Path) -> bytes | None:
    """Raises: InvalidInput: it cannot be read, or is too long."""
    return None if config.is_dir() else read_bounded(config)


def _git_folders(tree: Path) -> list[Path]:
    """The git directory of a tree, and the common one that it shares with other trees."""
    entry = tree / ".git"
    if entry.is_dir():
        return [entry]
    link = read_bounded(entry) or b""
    if not link.startswith(_GIT_FOLDER):
        return []
    folder = _gitdir_target(entry.parent, link.removeprefix(_GIT_FOLDER))
    common = read_bounded(folder / "commondir")
    return [folder] if common is None else [folder, _gitdir_target(folder, common)]


def _gitdir_target(base: Path, target: bytes) -> Path:
    return Path(os.path.normpath(base / os.fsdecode(target.strip().replace(b"\0", b""))))


def _configurations(folder: Path, home: Path) -> Iterator[Path]:
    yield from (folder / "config", folder / "config.worktree")
    yield from (home / ".gitconfig", home / ".config/git/config", Path("/etc/gitconfig"))
