"""What programs make cannot run on the host; what a rule forbids to edit, they cannot change."""

import errno
import os
import subprocess
from pathlib import Path

import pytest
from tests.abilities import require_hidden_files
from tests.session_e2e.session_setup import Scene

from mainspring.capabilities.providers.scripted import calls
from mainspring.core.errors import InvalidInput
from mainspring.harness.permissions.protected_path_watcher import (
    GitRepositories,
    ProtectedPathWatcher,
    find_repositories,
)

MADE = (
    *(".envrc", ".mcp.json", ".gitmodules", ".claude/settings.json", ".vscode/tasks.json"),
    *(".husky/pre-commit", ".git/config", ".git/hooks/pre-commit", ".kiro/hooks/x"),
    *("agent.yaml", "hooks.json", "mcp.json", ".agents/skills/x/SKILL.md"),
)
IN_GIT = (".git/commondir", ".git/config.worktree", ".git/modules/x/config")


def git(folder: Path, *arguments: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", *arguments], cwd=folder, check=True, timeout=60)


def script_creating(paths: tuple[str, ...]) -> str:
    return "; ".join(f"mkdir -p $(dirname {path}); echo evil > {path}" for path in paths)


def set_aside_files(scene: Scene) -> list[str]:
    found = (scene.workspace / ".mainspring/hands").glob("*/set-aside/*")
    return sorted(path.name.partition("-")[2] for path in found)


async def test_files_that_would_run_on_the_host_are_set_aside_and_reported(scene: Scene):
    require_hidden_files()
    scene.write("run.sh", script_creating(MADE))
    async with scene.play(calls("bash", command="sh run.sh"), mode="bypassPermissions") as play:
        await play.run()
        (told,) = await play.results()
        assert "set aside" in told
        assert "ask the user" in told
        assert [path for path in MADE if (scene.workspace / path).exists()] == []
    assert set_aside_files(scene) == sorted({path.split("/")[0] for path in MADE})


async def test_programs_cannot_add_configuration_files_to_a_repository(scene: Scene):
    git(scene.workspace, "init", "-q")
    scene.write("run.sh", script_creating(IN_GIT))
    async with scene.play(
        calls("bash", command="git add run.sh && git status --short; sh run.sh"),
        mode="bypassPermissions",
    ) as play:
        await play.run()
        (told,) = await play.results()
        assert "A  run.sh" in told
        assert ".git/commondir, .git/config.worktree, .git/modules" in told
    assert [path for path in IN_GIT if (scene.workspace / path).exists()] == []
    assert (scene.workspace / ".git/config").exists()


async def test_nested_repositories_keep_their_config_and_hooks(scene: Scene):
    require_hidden_files()
    git(scene.workspace / "a/sub", "init", "-q")
    config = scene.read("a/sub/.git/config")
    pointer = scene.write("b/.git", "gitdir: ../elsewhere\n")
    scene.write(
        "run.sh",
        "echo evil > a/sub/.git/config; echo evil > a/sub/.git/hooks/pre-commit;"
        "echo evil > a/sub/.git/commondir; mv a/sub/.git a/sub/old; mv a b2;"
        "echo 'gitdir: evil' > b/.git; rm -f b/.git",
    )
    async with scene.play(
        calls("bash", command="sh run.sh"),
        calls("bash", command="cd a/sub && touch x && git add x"),
        mode="bypassPermissions",
    ) as play:
        await play.run()
    assert scene.read("a/sub/.git/config") == config
    assert not (scene.workspace / "a/sub/.git/hooks/pre-commit").exists()
    assert not (scene.workspace / "a/sub/.git/commondir").exists()
    assert (scene.workspace / "a/sub/.git/index").exists()
    assert pointer.read_text() == "gitdir: ../elsewhere\n"


async def test_protected_files_created_by_people_between_runs_stay_and_are_protected(scene: Scene):
    require_hidden_files()
    scene.write("evil.sh", "echo evil > .vscode/tasks.json; rm -rf .vscode")
    async with scene.play(
        calls("bash", command="touch first"),
        calls("write", file_path=".vscode/tasks.json", content="mine"),
        calls("bash", command="sh evil.sh; touch second"),
        mode="bypassPermissions",
    ) as play:
        await play.allow(await play.run())
        assert (scene.workspace / "second").exists()
        assert scene.read(".vscode/tasks.json") == "mine"
    assert scene.read(".vscode/tasks.json") == "mine"


async def test_protected_files_created_by_a_service_are_set_aside_at_the_end(scene: Scene):
    scene.write("serve.sh", "mkdir .husky; touch made; sleep 60")
    async with scene.play(
        calls("service_start", name="s", command="sh serve.sh"),
        calls("bash", command="until test -e made; do sleep 0.02; done"),
        mode="bypassPermissions",
    ) as play:
        await play.run()
    assert (scene.workspace / "made").exists()
    assert not (scene.workspace / ".husky").exists()


async def test_programs_cannot_change_files_denied_for_editing(scene: Scene):
    require_hidden_files()
    scene.user(permissions={"deny": ["Edit(*.lock)", "Edit(vendor/**)"]})
    locked = [
        scene.write("sub/a.lock", "mine"),
        *(scene.write(f"vendor/deep/{number}.txt", "mine") for number in range(201)),
    ]
    script = "cat sub/a.lock; echo x > sub/a.lock; mv sub old; rm -rf vendor; echo x > vendor/new"
    scene.write("run.sh", f"{script}; echo fine > sub/b.txt")
    async with scene.play(calls("bash", command="sh run.sh"), mode="bypassPermissions") as play:
        await play.run()
        assert "mine" in (await play.results())[0]
    assert {path.read_text() for path in locked} == {"mine"}
    assert not (scene.workspace / "vendor/new").exists()
    assert scene.read("sub/b.txt") == "fine\n"


async def test_rules_that_deny_editing_too_many_files_are_refused(scene: Scene):
    scene.user(permissions={"deny": ["Edit(*.lock)"]})
    for number in range(201):
        scene.write(f"{number}.lock")
    async with scene.play(calls("bash", command="true"), mode="bypassPermissions") as play:
        with pytest.raises(InvalidInput, match="deny edit access to more than 200"):
            await play.run()


def test_a_symlink_is_moved_and_never_followed(tmp_path: Path):
    work, outside = tmp_path / "work", tmp_path / "outside"
    git(outside, "init", "-q")
    work.mkdir()
    watcher = ProtectedPathWatcher(
        work, (found := find_repositories(work, ())).control_files, found, tmp_path / "state"
    )
    watcher.begin()
    (work / ".git").symlink_to(outside / ".git")
    (outside / ".git/commondir").write_text("x")
    assert watcher.end() == [".git"]
    assert not (work / ".git").is_symlink()
    assert (outside / ".git/commondir").exists()


def test_a_protected_file_that_cannot_be_moved_away_is_renamed_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    watcher = ProtectedPathWatcher(tmp_path / "work", (), GitRepositories(), tmp_path / "state")
    watcher.workspace.mkdir()
    watcher.begin()
    (watcher.workspace / ".envrc").write_text("x")
    watcher.workspace.chmod(0o555)
    rename = os.rename

    def refuse_to_leave(source: str, target: str | Path, **folders: int) -> None:
        if "dst_dir_fd" not in folders:
            raise OSError(errno.EXDEV, "another file system")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", refuse_to_leave)
    assert watcher.end() == [".envrc"]
    (left,) = watcher.workspace.iterdir()
    assert left.name.endswith("-.envrc")


def test_a_replaced_symlink_is_set_aside(tmp_path: Path):
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    (work / ".claude").symlink_to("real")
    watcher = ProtectedPathWatcher(work, (), GitRepositories(), tmp_path / "state")
    watcher.begin()
    assert watcher.end() == []
    watcher.begin()
    (work / ".claude").unlink()
    (work / ".claude").symlink_to("evil")
    assert watcher.end() == [".claude"]


def test_files_created_while_another_program_starts_are_set_aside(tmp_path: Path):
    watcher = ProtectedPathWatcher(tmp_path / "work", (), GitRepositories(), tmp_path / "state")
    watcher.workspace.mkdir()
    watcher.begin()
    (watcher.workspace / ".envrc").touch()
    watcher.begin()  # the next one waits for its turn meanwhile
    assert watcher.end() == [".envrc"]
    (watcher.workspace / ".envrc").touch()
    assert watcher.end() == [".envrc"]
