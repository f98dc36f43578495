"""Git on the host in a repository that nobody vouches for: what it says is data, and runs nothing.

Hooks, filters, merge drivers and the like are named by the repository's own configuration and would
run outside of any sandbox. What is done with the repository is not decided here.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess

from anyio import to_thread

from mainspring.capabilities.sandbox.confined_process import Confinement, run_confined
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.runtime.definition_files.atomic_file import read_bounded

_MAX_ERROR_CHARACTERS = 500
_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Mainspring agent"), ("EMAIL", "agent@mainspring.invalid"))
}
_SAFE_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ALLOW_PROTOCOL": "none",  # what a partial clone lacks is not fetched
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_EDITOR": ":",
    "LC_ALL": "C",
    **_IDENTITY,
}
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "merge.autoStash": "false",
    "merge.verifySignatures": "false",
    "submodule.recurse": "false",
}
_PROGRAM_SETTINGS = (
    (re.compile(r"filter\..*\.(clean|smudge|process)", re.DOTALL), ""),
    (re.compile(r"filter\..*\.required", re.DOTALL), "false"),
    (re.compile(r"merge\..*\.driver", re.DOTALL), "false"),  # the program: all is a conflict
    (re.compile(r"branch\..*\.mergeoptions", re.DOTALL), ""),
    (re.compile(r"hook\..*\.command", re.DOTALL), "true"),  # newer than 2.53 has hooks there, too
)
"""What a configuration may name to be run, and what stands in for it."""
_REPOSITORY_ENTRIES = ("HEAD", "config", "objects", "refs", "worktrees")


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """One working tree. Where its repository is, is never left to what stands in the tree."""

    top: Path
    folder: Path
    """Of the repository: of this tree's own HEAD and index."""
    common: Path
    """The same for all trees of the repository."""
    settings: Mapping[str, str]
    beside: tuple[Path, ...] = ()
    """Where else it may make files: worktrees."""

    async def run(self, *arguments: str, given: bytes = b"") -> CompletedProcess[bytes]:
        where = {"GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self.top)}
        places = (self.top, self.folder, self.common, *self.beside)
        return await _run_git(arguments, self.top, where, self.settings, Confinement(places, given))

    async def output(self, *arguments: str, given: bytes = b"") -> str:
        """
        Raises:
            HandsError: what git says instead.
        """
        done = await self.run(*arguments, given=given)
        if done.returncode != 0:
            raise ToolEnvironmentError(f"git says: {git_error(done)}")
        return os.fsdecode(done.stdout).removesuffix("\n")

    async def output_names(self, *arguments: str) -> list[str]:
        """What it names one after the other; `-z` is among the arguments.

        Raises: HandsError.
        """
        return split_names(await self.output(*arguments))

    async def commit_of(self, name: str) -> str | None:
        done = await self.run("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
        return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None

    async def is_ancestor(self, commit: str, other: str) -> bool:
        """Whether a commit is part of another's history."""
        return (await self.run("merge-base", "--is-ancestor", commit, other)).returncode == 0

    async def at(self, top: Path, folder: Path) -> Git:
        """Another tree of the same repository.

        Raises: HandsError.
        """
        return await _without_programs(replace(self, top=top, folder=folder))


def split_names(listed: str) -> list[str]:
    return [name for name in listed.split("\0") if name]


async def open_repository(workspace: Path) -> Git:
    """The repository whose working tree a folder is in.

    Raises:
        HandsError: it is in none, or in one that cannot be worked in safely; it says why.
    """
    asked = ("rev-parse", "--is-bare-repository", "--absolute-git-dir", "--git-common-dir")
    done = await _run_git(asked, workspace, {}, _SETTINGS)
    if done.returncode != 0:
        if b"not a git repository" in done.stderr:
            raise ToolEnvironmentError(
                f"{workspace} is in no git repository, and a worktree is of one: run `git init`"
                " there and commit, or do without isolation"
            )
        raise ToolEnvironmentError(f"git says: {git_error(done)}")
    is_bare, folder, common = os.fsdecode(done.stdout).splitlines()
    if is_bare == "true":
        raise ToolEnvironmentError(f"{folder} is a bare repository: work in a clone of it")
    try:
        found = await to_thread.run_sync(
            _verified_repository, workspace, Path(folder), workspace / common
        )
    except OSError as error:
        raise ToolEnvironmentError(f"{folder} cannot be looked at: {error.strerror}") from error
    return await _without_programs(found)


def _verified_repository(workspace: Path, folder: Path, common: Path) -> Git:
    """What git has found is what stands in the workspace or above it, and knows that it does."""
    folder, common = folder.resolve(), common.resolve()
    top = next(
        (parent for parent in (workspace, *workspace.parents) if _exists(parent / ".git")), None
    )
    if top is None:
        raise ToolEnvironmentError(f"{workspace} is in no working tree of {folder}")
    entry = top / ".git"
    if entry.is_symlink() or any((common / name).is_symlink() for name in _REPOSITORY_ENTRIES):
        raise ToolEnvironmentError(f"{entry} is a link, or has links in it: that is not followed")
    if entry.is_dir():
        is_own = folder == entry == common and not _exists(entry / "commondir")
    else:
        is_linked = (
            folder.parent == common / "worktrees" and _linked_tree(folder / "gitdir") == entry
        )
        is_own = is_linked or (folder == common and _work_tree(folder) / ".git" == entry)
    if not is_own:
        raise ToolEnvironmentError(
            f"{entry} leads to {folder}, which is the repository of another folder"
        )
    return Git(top=top, folder=folder, common=common, settings=_SETTINGS)


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _linked_tree(file: Path) -> Path | None:
    """Where git says, in a file of a worktree's, that its tree is."""
    said = _read_text(file)
    return None if said is None else (file.parent / said.strip()).resolve()


def _read_text(file: Path) -> str | None:
    """Programs may have put anything in its place: a pipe, a device without end."""
    try:
        content = read_bounded(file)
        return None if content is None else content.decode()
    except (InvalidInput, UnicodeDecodeError):
        return None


def _work_tree(folder: Path) -> Path:
    """Of a submodule: its repository says where its tree is."""
    config = _read_text(folder / "config") or ""
    said = re.search(r"^[ \t]{0,20}worktree[ \t]{0,20}=[ \t]{0,20}(\S.*)$", config, re.MULTILINE)
    return folder if said is None else (folder / said[1].strip()).resolve()


def worktree_folder(common: Path, top: Path) -> Path | None:
    """What a repository keeps of one of its worktrees."""
    try:
        names = sorted(os.listdir(common / "worktrees"))
    except OSError:  # it has none, or a program is changing it at this moment
        return None
    for item in (common / "worktrees" / name for name in names):
        if item.is_symlink() or _linked_tree(item / "commondir") != common:
            continue  # programs may write there, and git would believe them
        if _linked_tree(item / "gitdir") == top / ".git":
            return item
    return None


async def _without_programs(git: Git) -> Git:
    """A repository may have other settings in each tree and on each branch."""
    named = await git.output_names("config", "--list", "--name-only", "-z")
    stands_in = {
        name: value
        for name in named
        for pattern, value in _PROGRAM_SETTINGS
        if pattern.fullmatch(name)
    }
    return replace(git, settings={**_SETTINGS, **stands_in})


async def _run_git(
    arguments: Sequence[str],
    at: Path,
    where: Mapping[str, str],
    settings: Mapping[str, str],
    confinement: Confinement | None = None,
) -> CompletedProcess[bytes]:
    program = shutil.which("git")
    if program is None:
        raise ToolEnvironmentError("git is not installed on this machine")
    environment = {
        "PATH": os.defpath,
        **_SAFE_ENVIRONMENT,
        **where,
        **_settings_environment(settings),
    }
    try:
        return await run_confined(
            [program, *arguments], at, environment, confinement or Confinement()
        )
    except TimeoutError:
        raise ToolEnvironmentError(f"git {arguments[0]} took too long") from None
    except OSError as error:
        raise ToolEnvironmentError(f"git cannot be run in {at}: {error.strerror}") from error


async def config_entries(content: bytes) -> list[tuple[str, str]]:
    """The settings in the text of a configuration; what it includes is not looked into.

    Raises:
        HandsError: it is none that git would read, or git is not there to read it.
    """
    arguments = ("config", "--file", "-", "--no-includes", "--list", "-z")
    done = await _run_git(arguments, Path("/"), {}, {}, Confinement(given=content))
    if done.returncode != 0:
        raise ToolEnvironmentError(f"git cannot read it: {git_error(done)}")
    entries = (entry.partition("\n") for entry in split_names(os.fsdecode(done.stdout)))
    return [(name, value) for name, _, value in entries]


def _settings_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Not by arguments, where a name may not have every character."""
    told = {"GIT_CONFIG_COUNT": str(len(settings))}
    for index, (name, value) in enumerate(settings.items()):
        told |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
    return told


def git_error(done: CompletedProcess[bytes]) -> str:
    said = done.stderr or done.stdout
    return (
        said.decode(errors="replace").strip()[:_MAX_ERROR_CHARACTERS] or f"exit {done.returncode}"
    )
