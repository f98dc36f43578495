"""What a person says in a session is remembered when its run ends, and recalled in the next."""

import msgspec
from tests.senders import TESTER
from tests.session_e2e.session_setup import DONE, Scene, leave

from mainspring.capabilities.providers.scripted import calls, says
from mainspring.core.events import (
    CompactionRequested,
    ContextCompacted,
    MemoryRecalled,
    MemoryWritten,
)
from mainspring.runtime.memory.proposals import Proposal


async def test_a_statement_of_a_person_is_remembered_once(scene: Scene):
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


async def test_without_a_memory_folder_nothing_is_remembered(scene: Scene):
    async with scene.play(DONE) as play:
        await play.run("Always write commit messages in French.")
        assert await play.events(MemoryWritten) == []
    assert not (scene.workspace / "memory").exists()


async def test_before_a_compaction_the_working_state_is_saved_unless_a_person_edited_it(
    scene: Scene,
):
    scene.write("memory/lunch.md", "Lunch is at noon.")
    scene.write("pages.txt", "word " * 4_000)
    summary = says("Read.\nOpen:\n- the tests")
    steps = (calls("read", file_path="pages.txt"), DONE, summary)
    async with scene.play(*steps, *steps[:1], DONE, says("Read.\nOpen:\n- the docs")) as play:
        await play.run("Convert the pages.")
        await play.runtime.log.submit(play.session.id, CompactionRequested(), sender=TESTER)
        await play.run()
        kinds = [
            (type(event.payload), getattr(event.payload, "path", ""))
            for event in await play.session.events()
        ]
        saved = [path for kind, path in kinds if kind is MemoryWritten]
        (path,) = [path for path in saved if path.startswith("episode_")]
        compacted = [kind for kind, _ in kinds].index(ContextCompacted)
        assert kinds.index((MemoryWritten, path)) < compacted
        note = scene.read(f"memory/{path}")
        assert note.endswith("---\n\nOpen:\n- the tests\n")
        assert "trust: agent" in note
        scene.write(f"memory/{path}", "The tests are done, I have looked. Anna")
        await play.run("Go on.")
        await play.runtime.log.submit(play.session.id, CompactionRequested(), sender=TESTER)
        await play.run()
    assert scene.read(f"memory/{path}") == "The tests are done, I have looked. Anna"


async def test_a_failure_seen_in_three_sessions_is_remembered_and_proposed_to_the_team(
    scene: Scene,
):
    team = scene.outside / "team"
    scene.write(team / "MEMORY.md", "# Memory\n")
    scene.write(scene.home / ".mainspring/team-memory", f"{team}\n")
    scene.write("memory/lunch.md", "Lunch is at noon.")
    scene.write("pages.txt", "word")
    wrong, right = "cat -n page.txt", "cat -n pages.txt"
    for session in (1, 2, 3):
        assert not list((team / ".proposals").glob("*")), session
        steps = calls("bash", command=wrong), calls("bash", command=right), DONE
        async with scene.play(*steps, mode="acceptEdits") as play:
            await play.session.permit(leave("bash"))
            assert (await play.run("Show the pages.")).ok
            sessions = [line.split()[2] for line in learnings(scene) if wrong in line]
            assert len(set(sessions)) == session
    (learned,) = scene.workspace.glob("memory/procedure_*.md")
    assert f"`{wrong}` fails here; `{right}` works." in learned.read_text()
    assert not list(team.glob("procedure_*")), "nobody has agreed"
    (file,) = (team / ".proposals").iterdir()
    proposal = msgspec.json.decode(file.read_bytes(), type=Proposal)
    assert (proposal.path, proposal.trust) == (learned.name, "agent")
    assert {item.session_id for item in proposal.evidence} == set(sessions)


def learnings(scene: Scene) -> list[str]:
    return scene.read(".learnings/ERRORS.md").splitlines()
