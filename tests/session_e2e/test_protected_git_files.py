"""What programs leave behind must not run on the host, when a person next uses git there."""

from tests.repositories import git
from tests.session_e2e.session_setup import Scene

from mainspring.capabilities.providers.scripted import calls


async def test_a_program_cannot_redirect_git_to_another_configuration(scene: Scene):
    scene.user(permissions={"allow": ["Bash"]})
    git(scene.workspace, "init", "-q")
    touched = scene.outside / "ran-on-the-host"
    scene.write(
        "test.sh",
        "mkdir evil && cp -r .git/objects .git/refs .git/config evil/"
        f" && git config -f evil/config core.fsmonitor 'touch {touched}; false'"
        " && echo ../evil > .git/commondir",
    )
    async with scene.play(calls("bash", command="sh test.sh")) as play:
        assert (await play.run()).reason == "completed"
        assert (scene.workspace / "evil/config").exists()
        git(scene.workspace, "status")
    assert not touched.exists()
    assert not (scene.workspace / ".git/commondir").exists()


async def test_the_repository_pointer_of_a_worktree_cannot_be_changed(scene: Scene):
    scene.user(permissions={"allow": ["Bash"]})
    pointer = scene.write(".git", "gitdir: /elsewhere\n")
    async with scene.play(
        calls("bash", command="echo 'gitdir: evil' > .git")
        + calls("bash", command="mv .git away")
        + calls("bash", command="rm -f .git")
    ) as play:
        await play.run()
    assert pointer.read_text() == "gitdir: /elsewhere\n"


async def test_a_shell_inside_a_protected_folder_is_checked_at_its_location(scene: Scene):
    git(scene.workspace, "init", "-q")
    async with scene.play(
        calls("bash", command='c""d .git'),
        calls("bash", command="echo ../evil > commondir"),
        mode="acceptEdits",
    ) as play:
        assert (await play.run()).reason == "requires_action"
        assert (await play.asked()).rule == "protected path"
