"""What a person says in a session is remembered when its run ends, and recalled in the next."""

from tests.session_e2e.session_setup import DONE, Scene

from mainspring.core.events import MemoryRecalled, MemoryWritten


async def test_what_a_person_says_is_remembered_once(scene: Scene):
    scene.write("memory/lunch.md", "Lunch is at noon.")
    async with scene.play(DONE, DONE, DONE) as play:
        await play.run("Always write commit messages in French.")
        await play.run("Thanks.")
        (written,) = await play.events(MemoryWritten)
        assert (written.operation, written.trust) == ("created", "agent")
        assert "commit messages in French" in scene.read(f"memory/{written.path}")
        await play.run("Write the commit messages.")
        (recalled,) = await play.events(MemoryRecalled)
        assert recalled.path == written.path


async def test_without_a_memory_folder_nothing_is_written(scene: Scene):
    async with scene.play(DONE) as play:
        await play.run("Always write commit messages in French.")
        assert await play.events(MemoryWritten) == []
    assert not (scene.workspace / "memory").exists()
