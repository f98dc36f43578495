"""What an existing git configuration names is protected: the host's next `git` would run it."""

from pathlib import Path

import pytest
from tests.abilities import require_hidden_files
from tests.repositories import git
from tests.session_e2e.session_setup import Scene

from mainspring.capabilities.providers.scripted import calls
from mainspring.core.errors import InvalidInput

NAMED = {
    "core.hooksPath": ("hooks dir", "hooks dir/post-index-change"),
    "include.path": ("../more.cfg", "more.cfg"),
    "includeIf.gitdir:/nowhere/.path": ("../cond.cfg", "cond.cfg"),
    "filter.x.clean": ("sh tools/clean.sh %f", "tools/clean.sh"),
    "filter.x.process": ("cd tools && ./process.sh", "tools/process.sh"),
    "core.fsmonitor": ("./watch.sh", "watch.sh"),
    "diff.x.textconv": ("python3 conv.py", "conv.py"),
    "alias.go": ('!f() { sh "bin/go.sh"; }; f', "bin/go.sh"),
    "credential.https://x.test.helper": ("!bin/cred", "bin/cred"),
    "unheard.of": ("bin/later --x", "bin/later"),
}


@pytest.fixture
def configured_scene(scene: Scene) -> Scene:
    git(scene.workspace, "init", "-q")
    for key, (value, file) in NAMED.items():
        git(scene.workspace, "config", key, value)
        if file not in ("bin/later", "cond.cfg"):
            scene.write(file, "" if file.endswith(".cfg") else "#!/bin/sh\n").chmod(0o755)
    return scene


async def test_files_named_by_the_git_configuration_are_protected_from_programs_and_tools(
    configured_scene: Scene,
):
    require_hidden_files()
    scene = configured_scene
    files = [file for _, file in NAMED.values()]
    before = {file: _content(scene, file) for file in files}
    spelled = "\n".join(f"mkdir -p '{Path(file).parent}'; echo evil > '{file}'" for file in files)
    scene.write("run.sh", f"{spelled}\nmv tools old; mv 'hooks dir' old2; rm -rf bin\n")
    edits = [calls("write", file_path=file, content="x") for file in ("bin/later", "x/../cond.cfg")]
    async with scene.play(calls("bash", command="sh run.sh"), mode="bypassPermissions") as play:
        await play.run()
        assert "set aside" in (await play.results())[0]
    async with scene.play(*edits, mode="dontAsk") as play:
        await play.run()
        assert [("protected" in result) for result in await play.results()] == [True] * len(edits)
    assert {file: _content(scene, file) for file in files} == before


def _content(scene: Scene, file: str) -> str | None:
    path = scene.workspace / file
    return path.read_text() if path.exists() else None


async def test_a_planted_rebase_step_is_set_aside_and_a_real_rebase_stays(scene: Scene):
    git(scene.workspace, "init", "-q")
    for name in ("one", "two"):
        scene.write("a", name)
        git(scene.workspace, "add", "a")
        git(scene.workspace, "commit", "-qm", name)
    planted = (
        "mkdir -p .git/rebase-merge; echo 'exec touch ran' > .git/rebase-merge/git-rebase-todo"
    )
    stopped = (
        "export GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/' GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x"
        " GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x\ngit rebase -i HEAD~1"
    )
    scene.write("plant.sh", planted)
    scene.write("rebase.sh", stopped)
    async with scene.play(
        calls("bash", command="sh plant.sh"),
        calls("bash", command="sh rebase.sh"),
        calls("bash", command="git status"),
        mode="bypassPermissions",
    ) as play:
        await play.run()
        first, _, last = await play.results()
        assert "set aside" in first
        assert "rebase in progress" in last


async def test_a_nested_repository_is_protected_like_the_workspace(scene: Scene):
    (scene.workspace / "sub").mkdir(exist_ok=True)
    git(scene.workspace / "sub", "init", "-q")
    git(scene.workspace / "sub", "config", "core.hooksPath", "h")
    scene.write(
        "run.sh", "mkdir -p sub/h sub/.Cursor; echo x > sub/h/pre-commit; echo > sub/.npmrc"
    )
    async with scene.play(calls("bash", command="sh run.sh"), mode="bypassPermissions") as play:
        await play.run()
        (told,) = await play.results()
    assert "sub/.Cursor, sub/.npmrc, sub/h" in told
    assert sorted(item.name for item in (scene.workspace / "sub").iterdir()) == [".git"]


async def test_an_unreadable_git_configuration_stops_the_session(scene: Scene):
    git(scene.workspace, "init", "-q")
    with (scene.workspace / ".git/config").open("a") as file:
        file.write("[core\n")
    async with scene.play(calls("bash", command="true")) as play:
        with pytest.raises(InvalidInput, match="config: git cannot read it: fatal: bad config"):
            await play.run()
