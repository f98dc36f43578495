"""Git worktrees of a workspace for threads that work separately: opened, compared, merged, removed.

Every step first checks the current state, so that it can be repeated after a crash at any point.
The workspace is changed by one fast-forward, after a merge without conflicts has been committed.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.git.untrusted_git import (
    Git,
    RunProgram,
    git_error,
    open_repository,
    split_names,
    worktree_folder,
)
from mainspring.core.errors import ToolEnvironmentError
from mainspring.core.ports import ClosedWorktree, Worktree
from mainspring.files.openat import open_absolute

_BRANCH_PREFIX = "mainspring/"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_MAX_LISTED = 10  # names in an error message; more would hide what to do
_DIFF_COMMAND = ("diff-tree", "-r", "-z", "--name-only", "--no-renames")
_DELETED_SESSION_MESSAGE = "Leftovers of a deleted session"


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorktreeState:
    """The current state of one worktree."""

    name: str
    repository: Git
    """The repository of the workspace."""
    top: Path
    folder: Path | None
    """The git directory of the worktree; `None`: the repository does not know it."""
    tip: str | None
    """The commit of its branch."""

    @property
    def branch(self) -> str:
        return f"{_BRANCH_PREFIX}{self.name}"

    @property
    def is_whole(self) -> bool:
        """Whether its checkout is complete: git writes the index after the files."""
        return self.folder is not None and self.top.is_dir() and (self.folder / "index").is_file()


class _StagedTree(Struct, frozen=True, kw_only=True):
    """The content of a worktree as a git tree."""

    git: Git
    tree: str
    apart: tuple[str, ...]
    """Repositories in the worktree, which cannot be committed to another."""


@dataclass(frozen=True, slots=True)
class GitWorktrees:
    """`Worktrees` of one workspace, each in a folder of `place`, which is outside the session's
    work."""

    workspace: Path
    place: Path
    run_program: RunProgram
    remove_folder: Callable[[Path, str], bool]
    """Removes a folder of `place` by its name, without following links."""
    private_folder: str
    """A folder of the workspace that sessions neither see nor change."""
    _lock: anyio.Lock = field(default_factory=anyio.Lock, compare=False)

    async def open(self, name: str) -> Worktree:
        async with self._lock:
            state = await self._read_state(name)
            head = await state.repository.commit_of("HEAD")
            if head is None:
                raise ToolEnvironmentError(
                    f"{state.repository.top} has no commit yet, and a worktree begins with one:"
                    " commit something first, or do without isolation"
                )
            if not state.is_whole:
                state = await self._create(state, head)
            tip = state.tip or head
            proc = await state.repository.run("merge-base", tip, head)
            base = os.fsdecode(proc.stdout).strip() if proc.returncode == 0 else tip
            path = await to_thread.run_sync(self._checked_path, state)
            return Worktree(path=path, branch=state.branch, commit=base)

    async def changes(self, worktree: Worktree) -> list[str]:
        async with self._lock:
            state = await self._read_state(_name_of(worktree))
            staged = await _stage_tree(state)
            now = state.tip if staged is None else staged.tree
            if now is None:
                return []
            changed = await state.repository.output_names(*_DIFF_COMMAND, worktree.commit, now)
            apart = staged.apart if staged is not None else ()
            within = self._within(state.repository).as_posix()
            return sorted(posixpath.relpath(path, within) for path in (*changed, *apart))

    async def close(self, worktree: Worktree, *, merge: bool, message: str) -> ClosedWorktree:
        async with self._lock:
            state = await self._read_state(_name_of(worktree))
            if not merge:
                await self._remove(state)
                return ClosedWorktree(outcome="discarded")
            return await self._merge(state, worktree, message)

    async def remove_all(self) -> None:
        """Remove all worktrees of a deleted session; work that is not merged stays on its branch.

        Raises: ToolEnvironmentError.
        """
        async with self._lock:
            for name in await to_thread.run_sync(_names_in, self.place):
                state = await self._read_state(name)
                head = await state.repository.commit_of("HEAD")
                if head is None:
                    continue
                tip = await _commit_worktree(
                    state, await _stage_tree(state), head, _DELETED_SESSION_MESSAGE
                )
                is_merged = tip is None or await state.repository.is_ancestor(tip, head)
                await self._remove(state if is_merged else replace(state, tip=None))

    async def _merge(
        self, state: _WorktreeState, worktree: Worktree, message: str
    ) -> ClosedWorktree:
        git = state.repository
        staged = await _stage_tree(state)
        if staged is not None and staged.apart:
            names = _list_names(staged.apart)
            return _not_merged(state, state.tip, f"{names}: a nested repository cannot be merged")
        tip = await _commit_worktree(state, staged, worktree.commit, message)
        head = await git.commit_of("HEAD")
        if head is None:
            return _not_merged(state, tip, f"{git.top} has no commit to merge it into")
        if tip is None or await git.is_ancestor(tip, head):
            merged = await _earlier_merge(state, worktree, head, tip)
            await self._remove(state)
            if merged is None:
                return ClosedWorktree(outcome="discarded", reason="nothing was changed")
            return ClosedWorktree(outcome="merged", commit=merged)
        merge = await _merge_commit(state, head, tip, message)
        if isinstance(merge, ClosedWorktree):
            return merge
        if private := await self._private(state.repository, head, merge):
            return _not_merged(
                state, tip, f"{_list_names(private)}: these are not part of the workspace"
            )
        forward = ("merge", "--quiet", "--ff-only", "--no-overwrite-ignore", merge)
        proc = await git.run(*forward)
        if proc.returncode != 0:
            return _not_merged(state, tip, f"git says: {git_error(proc)}")
        await self._remove(state)
        return ClosedWorktree(outcome="merged", commit=merge)

    async def _private(self, git: Git, head: str, merge: str) -> list[str]:
        """Paths in the private folder that a merge would change."""
        own = (self._within(git) / self.private_folder).as_posix()
        changed = await git.output_names(*_DIFF_COMMAND, head, merge)
        return [path for path in changed if f"{path}/".casefold().startswith(f"{own}/".casefold())]

    async def _read_state(self, name: str) -> _WorktreeState:
        if not _NAME.fullmatch(name):
            raise ToolEnvironmentError(f"{name!r} is not a valid name for a worktree")
        git_repository = await open_repository(self.workspace.resolve(), self.run_program)
        repository = replace(git_repository, worktree_folders=(self.place.resolve(),))
        top = self.place.resolve() / name
        folder = await to_thread.run_sync(worktree_folder, repository.common, top)
        tip = await repository.commit_of(f"refs/heads/{_BRANCH_PREFIX}{name}")
        return _WorktreeState(name=name, repository=repository, top=top, folder=folder, tip=tip)

    async def _create(self, state: _WorktreeState, head: str) -> _WorktreeState:
        """Create the worktree, which is new or whose folder is gone; an existing branch stays.

        Its files are checked out in a last, separate step, after its own settings could be checked.
        """
        git = state.repository
        await to_thread.run_sync(self._clear, state)
        new = ("--no-checkout", "-b", state.branch, "--", str(state.top), head)
        again = ("--no-checkout", "--", str(state.top), state.branch)
        await git.output("worktree", "add", "--quiet", *(new if state.tip is None else again))
        folder = await to_thread.run_sync(worktree_folder, git.common, state.top)
        if folder is None:
            raise ToolEnvironmentError(f"git created no worktree at {state.top}")
        own = await git.at(state.top, folder)
        await own.output("reset", "--quiet", "--hard")
        return replace(state, folder=folder)

    def _clear(self, state: _WorktreeState) -> None:
        """Remove the remains of an incomplete worktree.

        Raises:
            ToolEnvironmentError: the folder has files that are not ours.
        """
        if state.folder is None and state.top.is_dir() and any(state.top.iterdir()):
            raise ToolEnvironmentError(
                f"{state.top} is no longer a worktree of {state.repository.common}, and has files:"
                " check them and remove the folder"
            )
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_folders(state)

    def _checked_path(self, state: _WorktreeState) -> Path:
        """The folder of the worktree that corresponds to the workspace."""
        path = state.top / self._within(state.repository)
        if path.resolve() != path:
            raise ToolEnvironmentError(f"{path} is a link in the last commit: that is not followed")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _within(self, repository: Git) -> Path:
        return self.workspace.resolve().relative_to(repository.top)

    async def _remove(self, state: _WorktreeState) -> None:
        await to_thread.run_sync(self._remove_folders, state)
        if state.tip is not None:
            # git refuses if the branch is checked out elsewhere; then it is in use
            await state.repository.run("branch", "--quiet", "-D", "--", state.branch)

    def _remove_folders(self, state: _WorktreeState) -> None:
        """Rename the folder first: a partly removed one would look like a change."""
        removed_name = f"{state.name}_gone"
        self.remove_folder(self.place, removed_name)
        try:
            if state.top.exists():
                state.top.rename(state.top.with_name(removed_name))
            if state.folder is not None:
                _remove_tree(state.folder)
        except OSError as error:
            raise ToolEnvironmentError(
                f"{state.top} cannot be removed: {error.strerror}"
            ) from error
        self.remove_folder(self.place, removed_name)


def _remove_tree(folder: Path) -> None:
    """Remove a folder without following links: programs can change the repository that it is in."""
    above = open_absolute(str(folder.parent), os.O_RDONLY | os.O_DIRECTORY)
    try:
        shutil.rmtree(folder.name, dir_fd=above)
    finally:
        os.close(above)


async def _stage_tree(state: _WorktreeState) -> _StagedTree | None:
    """The tree that would be committed now; `None`: the worktree has no files.

    Uses plumbing commands only: porcelain would enter other repositories in the tree, and run
    whatever their settings name.
    """
    if state.folder is None or not state.is_whole:
        return None
    git = await state.repository.at(state.top, state.folder)
    arguments = ("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")
    names = list(dict.fromkeys(await git.output_names(*arguments)))
    apart = [name for name in names if name.endswith("/")]
    name_list = "".join(f"{name}\0" for name in names if name not in apart)
    if name_list:
        update_index = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        await git.output(*update_index, stdin=os.fsencode(name_list))
    return _StagedTree(git=git, tree=await git.output("write-tree"), apart=tuple(apart))


async def _commit_worktree(
    state: _WorktreeState, staged_tree: _StagedTree | None, base: str, message: str
) -> str | None:
    """The commit of the branch with everything in the worktree; if the branch was removed, based on
    `base`."""
    if staged_tree is None:
        return state.tip
    git, tip = staged_tree.git, state.tip or base
    if staged_tree.tree == await git.output("rev-parse", f"{tip}^{{tree}}"):
        return tip
    parents = ("-p", tip)
    commit = await git.output(
        "commit-tree", staged_tree.tree, *parents, "-F", "-", stdin=message.encode()
    )
    await git.output(
        "update-ref", f"refs/heads/{state.branch}", commit, state.tip or "0" * len(commit)
    )
    return commit


async def _merge_commit(
    state: _WorktreeState, head: str, tip: str, message: str
) -> str | ClosedWorktree:
    """A merge commit that no ref points to yet, or the reason why there is none."""
    git = state.repository
    merge_tree = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z")
    proc = await git.run(*merge_tree, head, tip)
    if proc.returncode not in (0, 1):
        return _not_merged(state, tip, f"git says: {git_error(proc)} (2.38 or newer is needed)")
    tree, *conflicts = split_names(os.fsdecode(proc.stdout))
    if proc.returncode == 1:
        return _not_merged(
            state, tip, f"it conflicts with the workspace in {_list_names(conflicts)}"
        )
    words = f"{_subject(state)}\n\n{message}\n".encode()
    return await git.output("commit-tree", tree, "-p", head, "-p", tip, "-F", "-", stdin=words)


async def _earlier_merge(
    state: _WorktreeState, worktree: Worktree, head: str, tip: str | None
) -> str | None:
    """The commit that merged the worktree before; `None`: it had no changes."""
    options = ("--merges", "--max-count=1", "--fixed-strings", f"--grep={_subject(state)}")
    commit = await state.repository.output("rev-list", *options, head, f"^{worktree.commit}")
    return commit or (tip if tip != worktree.commit else None)


def _subject(state: _WorktreeState) -> str:
    return f"Merge {state.branch}"


def _not_merged(state: _WorktreeState, commit: str | None, why: str) -> ClosedWorktree:
    reason = f"{why}. All of it is on the branch {state.branch}."
    return ClosedWorktree(outcome="kept", commit=commit, reason=reason)


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join((*names[:_MAX_LISTED], *([f"and {more} more"] if more > 0 else ())))


def _names_in(place: Path) -> list[str]:
    return sorted(item.name for item in place.glob("*") if _NAME.fullmatch(item.name))


def _name_of(worktree: Worktree) -> str:
    return worktree.branch.removeprefix(_BRANCH_PREFIX)
