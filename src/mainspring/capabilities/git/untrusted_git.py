"""Runs git on the host in an untrusted repository: its configuration must not run any program.

A repository's own configuration can name hooks, filters and merge drivers, which would run outside
of any sandbox. Callers decide what is done with the repository.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

from anyio import to_thread

from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.files.atomic_file import read_bounded

RunProgram: TypeAlias = Callable[
    [Sequence[str], Path, Mapping[str, str], Sequence[Path], bytes],
    Awaitable[CompletedProcess[bytes]],
]
"""Runs a command in a folder with an environment; it may access only these places, and gets this
input. Raises: OSError, TimeoutError."""

_MAX_ERROR_CHARACTERS = 500  # of git's message in an error that a person reads
_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Mainspring agent"), ("EMAIL", "agent@mainspring.invalid"))
}
_SAFE_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ALLOW_PROTOCOL": "none",  # missing objects of a partial clone are not fetched
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
    (re.compile(r"merge\..*\.driver", re.DOTALL), "false"),  # it fails: everything conflicts
    (re.compile(r"branch\..*\.mergeoptions", re.DOTALL), ""),
    (re.compile(r"hook\..*\.command", re.DOTALL), "true"),  # git after 2.53 also has hooks there
)
"""Settings that name programs, and the harmless values that replace them."""
_REPOSITORY_ENTRIES = ("HEAD", "config", "objects", "refs", "worktrees")


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """One working tree. Files in the tree never decide where its repository is."""

    top: Path
    folder: Path
    """The folder of the repository with this tree's own HEAD and index."""
    common: Path
    """The folder that all trees of the repository share."""
    settings: Mapping[str, str]
    run_program: RunProgram
    worktree_folders: tuple[Path, ...] = ()
    """Other folders in which git may create files: worktrees."""

    async def run(self, *arguments: str, stdin: bytes = b"") -> CompletedProcess[bytes]:
        folders = {"GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self.top)}
        places = (self.top, self.folder, self.common, *self.worktree_folders)
        environment = {**folders, **_settings_environment(self.settings)}
        return await _run_git(self.run_program, arguments, self.top, environment, places, stdin)

    async def output(self, *arguments: str, stdin: bytes = b"") -> str:
        """
        Raises:
            ToolEnvironmentError: git failed; with its message.
        """
        proc = await self.run(*arguments, stdin=stdin)
        if proc.returncode != 0:
            raise ToolEnvironmentError(f"git says: {git_error(proc)}")
        return os.fsdecode(proc.stdout).removesuffix("\n")

    async def output_names(self, *arguments: str) -> list[str]:
        """The names in git's output; `-z` must be among the arguments.

        Raises: ToolEnvironmentError.
        """
        return split_names(await self.output(*arguments))

    async def commit_of(self, name: str) -> str | None:
        proc = await self.run("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
        return os.fsdecode(proc.stdout).strip() if proc.returncode == 0 else None

    async def is_ancestor(self, commit: str, other: str) -> bool:
        """Whether a commit is part of another's history."""
        return (await self.run("merge-base", "--is-ancestor", commit, other)).returncode == 0

    async def at(self, top: Path, folder: Path) -> Git:
        """Another tree of the same repository.

        Raises: ToolEnvironmentError.
        """
        return await _without_programs(replace(self, top=top, folder=folder))


def split_names(output: str) -> list[str]:
    return [name for name in output.split("\0") if name]


async def open_repository(workspace: Path, run_program: RunProgram) -> Git:
    """The repository whose working tree contains a folder.

    Raises:
        ToolEnvironmentError: there is none, or it is not safe to work in; it says why.
    """
    arguments = ("rev-parse", "--is-bare-repository", "--absolute-git-dir", "--git-common-dir")
    proc = await _run_git(run_program, arguments, workspace, _settings_environment(_SETTINGS))
    if proc.returncode != 0:
        if b"not a git repository" in proc.stderr:
            raise ToolEnvironmentError(
                f"{workspace} is not in a git repository, which a worktree needs: run `git init`"
                " there and commit, or do without isolation"
            )
        raise ToolEnvironmentError(f"git says: {git_error(proc)}")
    is_bare, folder, common = os.fsdecode(proc.stdout).splitlines()
    if is_bare == "true":
        raise ToolEnvironmentError(f"{folder} is a bare repository: work in a clone of it")
    try:
        git = await to_thread.run_sync(
            _verified_repository, workspace, Path(folder), workspace / common, run_program
        )
    except OSError as error:
        raise ToolEnvironmentError(f"{folder} cannot be inspected: {error.strerror}") from error
    return await _without_programs(git)


def _verified_repository(
    workspace: Path, folder: Path, common: Path, run_program: RunProgram
) -> Git:
    """Check that the repository that git found belongs to the workspace or a folder above it."""
    folder, common = folder.resolve(), common.resolve()
    top = next(
        (parent for parent in (workspace, *workspace.parents) if _exists(parent / ".git")), None
    )
    if top is None:
        raise ToolEnvironmentError(f"{workspace} is not in a working tree of {folder}")
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
    return Git(top=top, folder=folder, common=common, settings=_SETTINGS, run_program=run_program)


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _linked_tree(file: Path) -> Path | None:
    """The working tree that a file of a repository names."""
    text = _read_text(file)
    return None if text is None else (file.parent / text.strip()).resolve()


def _read_text(file: Path) -> str | None:
    """The content; `None` if it is not a text file: programs may have replaced it by a pipe or a
    device."""
    try:
        content = read_bounded(file)
        return None if content is None else content.decode()
    except (InvalidInput, UnicodeDecodeError):
        return None


def _work_tree(folder: Path) -> Path:
    """The working tree of a submodule, as its repository's configuration names it."""
    config = _read_text(folder / "config") or ""
    setting = re.search(r"^[ \t]{0,20}worktree[ \t]{0,20}=[ \t]{0,20}(\S.*)$", config, re.MULTILINE)
    return folder if setting is None else (folder / setting[1].strip()).resolve()


def worktree_folder(common: Path, top: Path) -> Path | None:
    """The folder in which a repository keeps the state of one of its worktrees."""
    try:
        names = sorted(os.listdir(common / "worktrees"))
    except OSError:  # none, or a program is changing them
        return None
    for item in (common / "worktrees" / name for name in names):
        if item.is_symlink() or _linked_tree(item / "commondir") != common:
            continue  # programs can write there, and git would trust it
        if _linked_tree(item / "gitdir") == top / ".git":
            return item
    return None


async def _without_programs(git: Git) -> Git:
    """Override the settings that name programs; each tree and branch may have others."""
    names = await git.output_names("config", "--list", "--name-only", "-z")
    overrides = {
        name: value
        for name in names
        for pattern, value in _PROGRAM_SETTINGS
        if pattern.fullmatch(name)
    }
    return replace(git, settings={**_SETTINGS, **overrides})


async def _run_git(
    run_program: RunProgram,
    arguments: Sequence[str],
    at: Path,
    environment: Mapping[str, str],
    places: Sequence[Path] = (),
    stdin: bytes = b"",
) -> CompletedProcess[bytes]:
    program = shutil.which("git")
    if program is None:
        raise ToolEnvironmentError("git is not installed on this machine")
    variables = {"PATH": os.defpath, **_SAFE_ENVIRONMENT, **environment}
    try:
        return await run_program([program, *arguments], at, variables, places, stdin)
    except TimeoutError:
        raise ToolEnvironmentError(f"git {arguments[0]} took too long") from None
    except OSError as error:
        raise ToolEnvironmentError(f"git cannot be run in {at}: {error.strerror}") from error


async def config_entries(content: bytes, run_program: RunProgram) -> list[tuple[str, str]]:
    """The settings in the text of a configuration; included files are not read.

    Raises:
        ToolEnvironmentError: git cannot read it, or is not installed.
    """
    arguments = ("config", "--file", "-", "--no-includes", "--list", "-z")
    proc = await _run_git(run_program, arguments, Path("/"), {}, stdin=content)
    if proc.returncode != 0:
        raise ToolEnvironmentError(f"git cannot read it: {git_error(proc)}")
    entries = (entry.partition("\n") for entry in split_names(os.fsdecode(proc.stdout)))
    return [(name, value) for name, _, value in entries]


def _settings_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as environment variables: as an argument, a name could not contain every
    character."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for index, (name, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
    return variables


def git_error(proc: CompletedProcess[bytes]) -> str:
    output = proc.stderr or proc.stdout
    return (
        output.decode(errors="replace").strip()[:_MAX_ERROR_CHARACTERS] or f"exit {proc.returncode}"
    )
