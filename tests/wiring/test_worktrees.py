"""Worktrees of a workspace, with real git: merged, discarded, kept; killed anywhere."""

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.repositories import git, repository
from tests.written_files import write_file

from mainspring.capabilities.git.worktrees import GitWorktrees
from mainspring.capabilities.sandbox import readonly_mounts
from mainspring.capabilities.sandbox.backends.confined_process import run_confined
from mainspring.core.errors import ToolEnvironmentError
from mainspring.core.ports import ClosedWorktree, Worktree
from mainspring.wiring.worktrees import open_worktrees


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return repository(tmp_path / "work")


@pytest.fixture
def worktrees(workspace: Path, tmp_path: Path) -> GitWorktrees:
    return open_worktrees(workspace, tmp_path / "place")


def left_over(worktrees: GitWorktrees) -> list[str]:
    """What there is of any worktree: folders, what git knows, branches."""
    place = worktrees.place
    return [
        *(item.name for item in place.glob("*")),
        *(item.name for item in (worktrees.workspace / ".git/worktrees").glob("*")),
        *git(worktrees.workspace, "branch", "--list", "mainspring/*").split(),
    ]


merge = partial(GitWorktrees.close, merge=True, message="did it")
discard = partial(GitWorktrees.close, merge=False, message="")


async def test_work_is_merged_and_the_worktree_is_removed(worktrees: GitWorktrees, workspace: Path):
    (workspace / "b.txt").write_text("being edited\n")
    (workspace / "mine.txt").write_text("not in git\n")
    opened = await worktrees.open("helper-1")
    assert (opened.branch, opened.path) == ("mainspring/helper-1", worktrees.place / "helper-1")
    assert await worktrees.open("helper-1") == opened
    assert (opened.path / "b.txt").read_text() == "two\n"
    (opened.path / "a.txt").unlink()
    write_file(opened.path / "new/c\n ü.txt", "three\n")
    assert (workspace / "a.txt").exists()
    assert await worktrees.changes(opened) == ["a.txt", "new/c\n ü.txt"]

    closed = await merge(worktrees, opened)

    assert closed == ClosedWorktree(outcome="merged", commit=git(workspace, "rev-parse", "main"))
    assert not (workspace / "a.txt").exists()
    assert (workspace / "new/c\n ü.txt").read_text() == "three\n"
    assert (workspace / "b.txt").read_text() == "being edited\n"
    assert (workspace / "mine.txt").exists()
    assert git(workspace, "log", "--topo-order", "--format=%an: %s", "main").splitlines() == [
        "Mainspring agent: Merge mainspring/helper-1",
        "Mainspring agent: did it",
        "A Person: begin",
    ]
    assert left_over(worktrees) == []


async def test_the_second_of_two_conflicting_worktrees_is_kept(
    worktrees: GitWorktrees, workspace: Path
):
    one, two = await worktrees.open("one"), await worktrees.open("two")
    (one.path / "a.txt").write_text("uno\n")
    (two.path / "a.txt").write_text("due\n")
    assert (await merge(worktrees, one)).outcome == "merged"

    closed = await merge(worktrees, two)

    assert closed.outcome == "kept"
    assert closed.reason is not None
    assert "conflicts with the workspace in a.txt" in closed.reason
    assert "mainspring/two" in closed.reason
    assert git(workspace, "status", "--porcelain") == ""
    assert git(workspace, "show", "mainspring/two:a.txt") == "due"
    assert (two.path / "a.txt").read_text() == "due\n"
    git(workspace, "merge", "--quiet", "--strategy-option=theirs", "--no-edit", "mainspring/two")
    assert (await merge(worktrees, two)).outcome == "merged"
    assert left_over(worktrees) == []


async def test_a_worktree_without_changes_is_discarded(worktrees: GitWorktrees):
    opened = await worktrees.open("idle")
    (opened.path / "a.txt").write_text("one\n")
    assert await worktrees.changes(opened) == []
    assert (await merge(worktrees, opened)).outcome == "discarded"
    assert left_over(worktrees) == []


async def test_discarding_a_worktree_removes_only_its_own_branch(
    worktrees: GitWorktrees, workspace: Path
):
    git(workspace, "branch", "mainspring/mine")
    opened = await worktrees.open("useless")
    (opened.path / "a.txt").write_text("nonsense\n")
    assert await discard(worktrees, opened) == ClosedWorktree(outcome="discarded")
    assert (workspace / "a.txt").read_text() == "one\n"
    assert left_over(worktrees) == ["mainspring/mine"]


@pytest.mark.parametrize("is_staged", [False, True])
async def test_uncommitted_work_is_not_overwritten(
    worktrees: GitWorktrees, workspace: Path, is_staged: bool
):
    opened = await worktrees.open("helper")
    (opened.path / "a.txt").write_text("theirs\n")
    (workspace / "a.txt").write_text("mine\n")
    if is_staged:
        git(workspace, "add", "a.txt")
    closed = await merge(worktrees, opened)
    assert closed.outcome == "kept"
    assert "a.txt" in (closed.reason or "")
    assert (workspace / "a.txt").read_text() == "mine\n"
    assert git(workspace, "show", "mainspring/helper:a.txt") == "theirs"
    git(workspace, "checkout", "--quiet", "HEAD", "--", "a.txt")
    assert (await merge(worktrees, opened)).outcome == "merged"
    assert (workspace / "a.txt").read_text() == "theirs\n"


async def test_an_ignored_file_is_not_overwritten(worktrees: GitWorktrees, workspace: Path):
    exclude = workspace / ".git/info/exclude"
    exclude.parent.mkdir()
    opened = await worktrees.open("helper")
    (opened.path / "notes").write_text("theirs")
    await worktrees.changes(opened)
    exclude.write_text("notes\n")
    (workspace / "notes").write_text("mine")
    assert (await merge(worktrees, opened)).outcome == "kept"
    assert (workspace / "notes").read_text() == "mine"


async def test_a_subfolder_workspace_uses_the_same_subfolder_of_the_worktree(
    workspace: Path, tmp_path: Path
):
    write_file(workspace / "part/c.txt", "c\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "--quiet", "--message=part")
    worktrees = open_worktrees(workspace / "part", tmp_path / "place")
    opened = await worktrees.open("helper")
    assert opened.path == tmp_path / "place/helper/part"
    (opened.path / "c.txt").write_text("changed\n")
    assert await worktrees.changes(opened) == ["c.txt"]
    assert (await merge(worktrees, opened)).outcome == "merged"
    assert (workspace / "part/c.txt").read_text() == "changed\n"


async def test_without_a_usable_repository_the_reason_is_reported(tmp_path: Path):
    place = tmp_path / "place"
    (tmp_path / "plain").mkdir()
    git(tmp_path, "init", "--quiet", "empty")
    git(tmp_path, "init", "--quiet", "--bare", "bare.git")
    for name, why in [
        ("plain", "not in a git repository.* `git init`"),
        ("empty", "no commit yet.* commit something"),
        ("bare.git", "a bare repository"),
    ]:
        with pytest.raises(ToolEnvironmentError, match=why):
            await open_worktrees(tmp_path / name, place).open("helper")
    with pytest.raises(ToolEnvironmentError, match="not a valid name"):
        await open_worktrees(repository(tmp_path / "work"), place).open("../helper")


async def test_a_workspace_that_is_a_worktree_can_have_worktrees(workspace: Path, tmp_path: Path):
    git(workspace, "worktree", "add", "--quiet", "-b", "mine", str(tmp_path / "mine"))
    worktrees = open_worktrees(tmp_path / "mine", tmp_path / "place")
    opened = await worktrees.open("helper")
    (opened.path / "a.txt").write_text("changed\n")
    assert (await merge(worktrees, opened)).outcome == "merged"
    assert (tmp_path / "mine/a.txt").read_text() == "changed\n"
    assert (workspace / "a.txt").read_text() == "one\n"


async def test_removing_all_worktrees_keeps_branches_with_work(
    worktrees: GitWorktrees, workspace: Path
):
    await worktrees.open("idle")
    opened = await worktrees.open("busy")
    (opened.path / "a.txt").write_text("not lost\n")
    await worktrees.remove_all()
    await worktrees.remove_all()
    assert left_over(worktrees) == ["mainspring/busy"]
    assert git(workspace, "show", "mainspring/busy:a.txt") == "not lost"


class ProcessKilled(BaseException):
    pass


class KillPlan:
    """Dies right before what would change something for the n-th time."""

    STEPS = frozenset(
        ("worktree", "reset", "update-index", "commit-tree", "update-ref", "merge", "branch")
    )

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self._rmtree: Callable[..., None] = shutil.rmtree
        self._remove_tree = readonly_mounts.remove_tree
        monkeypatch.setattr(shutil, "rmtree", self.rmtree)
        monkeypatch.setattr(readonly_mounts, "remove_tree", self.remove_tree)

    def over(self, worktrees: GitWorktrees) -> GitWorktrees:
        async def run(
            command: Sequence[str],
            at: Path,
            environment: Mapping[str, str],
            places: Sequence[Path],
            stdin: bytes,
        ) -> CompletedProcess[bytes]:
            if command[1] in self.STEPS and self._dies():
                raise ProcessKilled
            return await run_confined(command, at, environment, places, stdin)

        return replace(worktrees, run_program=run)

    def rmtree(self, path: Path | str, **more: object) -> None:
        if self._dies():
            raise ProcessKilled
        self._rmtree(path, **more)

    def remove_tree(self, above: Path, name: str) -> bool:
        if (above / name).exists() and self._dies():
            raise ProcessKilled
        return self._remove_tree(above, name)

    def _dies(self) -> bool:
        self.left -= 1
        return self.left == 0

    async def survived(self, work: Callable[[], Awaitable[object]], step: int) -> bool:
        """Whether it came to its end before that step."""
        self.left = step
        try:
            await work()
        except ProcessKilled:
            return False
        finally:
            self.left = -1
        return True


async def open_after_kills(worktrees: GitWorktrees, fate: KillPlan, step: int, name: str) -> bool:
    done = await fate.survived(partial(worktrees.open, name), step)
    opened = await worktrees.open(name)
    assert sorted(item.name for item in opened.path.iterdir()) == [".git", "a.txt", "b.txt"]
    assert await worktrees.changes(opened) == []
    await discard(worktrees, opened)
    assert left_over(worktrees) == []
    return done


async def test_opening_a_worktree_completes_after_kills(
    worktrees: GitWorktrees, monkeypatch: pytest.MonkeyPatch
):
    fate = KillPlan(monkeypatch)
    worktrees = fate.over(worktrees)
    step = 1
    while not await open_after_kills(worktrees, fate, step, f"helper-{step}"):
        step += 1
    assert step == 3


async def open_changed_worktree(worktrees: GitWorktrees, name: str) -> Worktree:
    opened = await worktrees.open(name)
    (opened.path / "a.txt").write_text(f"{name}\n")
    return opened


async def test_a_worktree_is_merged_once_after_any_number_of_kills(
    worktrees: GitWorktrees, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    fate = KillPlan(monkeypatch)
    worktrees = fate.over(worktrees)
    done, step = False, 0
    while not done:
        step += 1
        opened = await open_changed_worktree(worktrees, f"helper-{step}")
        done = await fate.survived(partial(merge, worktrees, opened), step)
        assert (await merge(worktrees, opened)).outcome == "merged"
        assert (workspace / "a.txt").read_text() == f"helper-{step}\n"
        assert left_over(worktrees) == []
    assert step == 9
    assert len(git(workspace, "log", "--merges", "--format=%h").split()) == step


async def test_a_worktree_is_discarded_after_any_number_of_kills(
    worktrees: GitWorktrees, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    fate = KillPlan(monkeypatch)
    worktrees = fate.over(worktrees)
    done, step = False, 0
    while not done:
        step += 1
        opened = await open_changed_worktree(worktrees, f"helper-{step}")
        done = await fate.survived(partial(discard, worktrees, opened), step)
        assert (await discard(worktrees, opened)).outcome == "discarded"
        assert left_over(worktrees) == []
    assert step == 4
    assert git(workspace, "log", "--format=%s") == "begin"


async def test_work_is_not_lost_with_the_metadata_of_git(worktrees: GitWorktrees, workspace: Path):
    opened = await open_changed_worktree(worktrees, "helper")
    git(workspace, "update-ref", "-d", "refs/heads/mainspring/helper")
    assert (await merge(worktrees, opened)).outcome == "merged"
    assert (workspace / "a.txt").read_text() == "helper\n"

    opened = await open_changed_worktree(worktrees, "other")
    shutil.rmtree(workspace / ".git/worktrees")
    with pytest.raises(ToolEnvironmentError, match="has files"):
        await worktrees.open("other")
    assert (opened.path / "a.txt").read_text() == "other\n"
