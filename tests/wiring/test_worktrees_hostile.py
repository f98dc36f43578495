"""Worktrees of repositories that mean ill: nothing of theirs runs, nothing else is changed."""

import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.repositories import git, repository

from mainspring.capabilities.git.worktrees import GitWorktrees
from mainspring.capabilities.sandbox.backends.confined_process import run_confined
from mainspring.core.errors import ToolEnvironmentError
from mainspring.wiring.worktrees import open_worktrees

merge = partial(GitWorktrees.close, merge=True, message="did it")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return repository(tmp_path / "work")


@pytest.fixture
def worktrees(workspace: Path, tmp_path: Path) -> GitWorktrees:
    return open_worktrees(workspace, tmp_path / "place")


HOOKS = (
    *("post-checkout", "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"),
    *("pre-merge-commit", "post-merge", "reference-transaction", "post-index-change"),
)


async def test_no_hook_or_filter_of_the_repository_runs(
    workspace: Path, worktrees: GitWorktrees, tmp_path: Path
):
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\ncat\n')
    program.chmod(0o755)
    for hooks in (workspace / ".git/hooks", tmp_path / "hooks"):
        hooks.mkdir(exist_ok=True)
        for name in HOOKS:
            shutil.copy(program, hooks / name)
    (workspace / ".gitattributes").write_text(
        "* filter=evil merge=evil diff=evil\nb.txt filter=hidden\n"
    )
    git(workspace, "add", ".gitattributes")
    git(workspace, "-c", f"core.hooksPath={tmp_path}/none", "commit", "--quiet", "-m", "x")
    ran.unlink(missing_ok=True)
    settings = [
        *(f"filter.{name} = {program}" for name in ("evil.clean", "evil.smudge", "evil.process")),
        *(f"{name} = {program}" for name in ("core.fsmonitor", "merge.evil.driver")),
        *(f"{name} = {program}" for name in ("diff.evil.textconv", "diff.external")),
        *(f"gpg.program = {program}", "commit.gpgSign = true", "merge.verifySignatures = true"),
        *(f"core.hooksPath = {tmp_path}/hooks", "filter.evil.required = true"),
        "branch.main.mergeOptions = --verify-signatures",
        *(f"hook.evil.command = {program}", "hook.evil.event = post-merge"),
    ]
    for setting in settings:
        git(workspace, "config", *setting.split(" = "))
    only = workspace / ".git/only-there"
    only.write_text(f'[filter "hidden"]\n\tsmudge = {program}\n\tclean = {program}\n')
    git(workspace, "config", "includeIf.onbranch:mainspring/**.path", str(only))

    one, two = await worktrees.open("one"), await worktrees.open("two")
    (one.path / "a.txt").write_text("uno\n")
    (two.path / "b.txt").write_text("due\n")
    assert await worktrees.changes(one) == ["a.txt"]
    assert (await merge(worktrees, one)).outcome == "merged"
    assert (await merge(worktrees, two)).outcome == "merged"

    assert (workspace / "a.txt").read_text() == "uno\n"
    assert not ran.exists(), ran.read_text()


async def test_files_in_a_worktree_cannot_redirect_git(
    worktrees: GitWorktrees, workspace: Path, tmp_path: Path
):
    ran = tmp_path / "ran"
    other = repository(tmp_path / "other")
    opened = await worktrees.open("helper")
    (opened.path / ".git").write_text(f"gitdir: {other}/.git\n")
    (opened.path / "a.txt").write_text("changed\n")
    assert await worktrees.changes(opened) == ["a.txt"]
    inner = repository(opened.path / "inner")
    (inner / ".gitattributes").write_text("* filter=evil\n")
    git(inner, "config", "filter.evil.clean", f"touch {ran}; cat")
    git(inner, "config", "core.fsmonitor", f"touch {ran}")
    closed = await merge(worktrees, opened)
    assert closed.outcome == "kept"
    assert "inner/: a nested repository" in (closed.reason or "")
    shutil.rmtree(inner)
    assert (await merge(worktrees, opened)).outcome == "merged"
    assert git(other, "log", "--format=%s") == "begin"
    assert not ran.exists()


def _file(entry: Path, other: Path) -> None:
    entry.write_text(f"gitdir: {other}/.git\n")


def _link(entry: Path, other: Path) -> None:
    entry.symlink_to(other / ".git")


def _common(entry: Path, other: Path) -> None:
    shutil.copytree(other / ".git", entry)
    (entry / "commondir").write_text(f"{other}/.git\n")


def _inner_link(entry: Path, other: Path) -> None:
    shutil.copytree(other / ".git", entry)
    shutil.rmtree(entry / "refs")
    (entry / "refs").symlink_to(other / ".git/refs")


def _linked(entry: Path, other: Path) -> None:
    folder = entry.with_name("folder")
    folder.mkdir()
    entry.write_text(f"gitdir: {folder}\n")
    (folder / "gitdir").write_text(f"{entry}\n")
    (folder / "commondir").write_text(f"{other}/.git\n")
    (folder / "HEAD").write_text("ref: refs/heads/main\n")


@pytest.mark.parametrize("lead", [_file, _link, _common, _inner_link, _linked])
async def test_a_redirected_git_folder_is_refused_and_the_other_repository_unchanged(
    tmp_path: Path, lead: Callable[[Path, Path], None]
):
    other = repository(tmp_path / "other")
    workspace = tmp_path / "work"
    workspace.mkdir()
    lead(workspace / ".git", other)
    with pytest.raises(ToolEnvironmentError, match=r"leads to|is a link"):
        await open_worktrees(workspace, tmp_path / "place").open("helper")
    assert git(other, "branch", "--format=%(refname:short)") == "main"


async def test_core_worktree_of_a_repository_is_ignored(
    worktrees: GitWorktrees, workspace: Path, tmp_path: Path
):
    home = tmp_path / "home"
    home.mkdir()
    git(workspace, "config", "core.worktree", str(home))
    opened = await worktrees.open("helper")
    (opened.path / "a.txt").write_text("changed\n")
    assert (await merge(worktrees, opened)).outcome == "merged"
    assert (workspace / "a.txt").read_text() == "changed\n"
    assert list(home.iterdir()) == []


async def test_a_commondir_of_a_worktree_is_ignored(
    worktrees: GitWorktrees, workspace: Path, tmp_path: Path
):
    other = repository(tmp_path / "other")
    before = sorted(path.name for path in (other / ".git/objects").iterdir())
    opened = await worktrees.open("helper")
    (opened.path / "a.txt").write_text("changed\n")
    [kept] = (workspace / ".git/worktrees").iterdir()
    shutil.copytree(kept, kept.with_name("a-first-one"))
    (kept.with_name("a-first-one") / "commondir").write_text(f"{other}/.git\n")
    assert await worktrees.changes(opened) == ["a.txt"]
    assert (await merge(worktrees, opened)).outcome == "merged"
    assert git(other, "branch", "--format=%(refname:short)") == "main"
    assert sorted(path.name for path in (other / ".git/objects").iterdir()) == before


async def test_a_fifo_in_place_of_a_git_file_does_not_block(
    worktrees: GitWorktrees, workspace: Path
):
    folder = workspace / ".git/worktrees/pipes"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "commondir")
    pipe = os.open(folder / "commondir", os.O_RDWR)
    ending = threading.Timer(30, os.close, (pipe,))  # whoever waits by then, goes on
    ending.start()
    opened = await worktrees.open("helper")
    assert ending.is_alive()
    ending.cancel()
    os.close(pipe)
    assert (opened.path / "a.txt").is_file()


async def test_the_memory_of_git_is_limited(tmp_path: Path):
    told = await run_confined(["sh", "-c", "read line; ulimit -d"], tmp_path, {}, stdin=b"\n")
    assert told.stdout == b"2097152\n"
