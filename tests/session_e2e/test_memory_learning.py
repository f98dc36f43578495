"""What a person says in a session is remembered when its run ends, and recalled in the next."""

import re
from collections.abc import Callable
from dataclasses import replace

import msgspec
from tests.senders import TESTER
from tests.session_e2e.session_setup import DONE, MODEL, Scene, at_work, leave

from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, calls, says
from mainspring.core.events import (
    CompactionRequested,
    ContextCompacted,
    MemoryExtracted,
    MemoryLearned,
    MemoryRecalled,
    MemoryWritten,
    ModelRequestEnded,
)
from mainspring.core.model import Request
from mainspring.runtime.memory.memory_mode import MemoryLearning
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


def model_that_learns(text: str, reply: Callable[[], ScriptAnswer] = lambda: DONE) -> Scripted:
    """A model that adds a memory with the text when it is asked what to learn."""

    def answer(request: Request) -> ScriptAnswer:
        if not any("long-term memory" in system for system in request.system):
            return reply()
        (event, *_) = re.findall(r"sevt_\w+", str(request.messages[-1]))
        operation = {"op": "add", "event": event, "type": "project", "text": text}
        return says(msgspec.json.encode({"operations": [operation]}).decode())

    return Scripted(otherwise=answer)


async def test_a_model_that_is_configured_writes_memory_and_its_cost_is_in_the_log(scene: Scene):
    scene.write("memory/lunch.md", "Lunch is at noon.")
    wiki = "Unser Wiki ist unter wiki.example.org."
    agent = replace(at_work(()), learning=MemoryLearning(by="model"))
    async with scene.runtime() as runtime:
        runtime.models.put(MODEL, model_that_learns(wiki))
        session = await runtime.start(agent, wiki)
        await session.run()
        await session.send("Danke dir, das war alles für heute.")
        await session.run()
        payloads = [event.payload for event in await session.events()]
    (written,) = [item for item in payloads if isinstance(item, MemoryWritten)]
    assert written.reason == "learned from a session, by a model"
    assert wiki in scene.read(f"memory/{written.path}")
    purposes = [item.purpose for item in payloads if isinstance(item, ModelRequestEnded)]
    assert purposes == [None, "extract", None, "extract"]
    refused = [item.refused for item in payloads if isinstance(item, MemoryExtracted)]
    assert not refused[0]
    assert "did not say" in refused[1][0].problem
    assert scene.warnings == []


async def test_a_model_that_learns_reads_what_was_said_before_a_compaction(scene: Scene):
    scene.write("memory/lunch.md", "Lunch is at noon.")
    scene.write("pages.txt", "word " * 4_000)
    wiki = "Unser Wiki ist unter wiki.example.org."
    replies = iter((calls("read", file_path="pages.txt"), DONE, says("Read.\nOpen:\n- the tests")))
    agent = replace(at_work(()), learning=MemoryLearning(by="model"))
    async with scene.runtime() as runtime:
        runtime.models.put(MODEL, model_that_learns(wiki, lambda: next(replies, DONE)))
        session = await runtime.start(agent, "Wandle die Seiten um. " + wiki)
        await runtime.log.submit(session.id, CompactionRequested(), sender=TESTER)
        await session.run()
        payloads = [event.payload for event in await session.events()]
    kinds = [type(item) for item in payloads]
    assert kinds.count(MemoryExtracted) == kinds.count(MemoryLearned) == 1
    assert scene.warnings == []


async def test_learning_can_be_turned_off(scene: Scene):
    scene.write("memory/lunch.md", "Lunch is at noon.")
    agent = replace(at_work(()), learning=MemoryLearning(by="off"))
    async with scene.runtime() as runtime:
        runtime.models.put(MODEL, Scripted(otherwise=DONE))
        session = await runtime.start(agent, "Always write commit messages in French.")
        await session.run()
        kinds = {type(event.payload) for event in await session.events()}
    assert MemoryWritten not in kinds
    assert MemoryRecalled not in kinds
