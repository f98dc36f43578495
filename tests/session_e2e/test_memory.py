"""What a session is given from memory, and what it writes to it."""

import json
from dataclasses import replace

from tests.session_e2e.session_setup import DONE, MODEL, Scene, at_work, leave

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.config import read_settings
from mainspring.core.content import plain_text
from mainspring.core.events import (
    AgentToolResult,
    ContextAdded,
    MemoryRecalled,
    MemoryWritten,
    ModelRequestEnded,
)
from mainspring.harness.context.provenance import request_parts
from mainspring.harness.context.xray import render_message
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.xrays import read_shots
from mainspring.runtime.subagent import Subagent
from mainspring.wiring.agent_selection import agent_selection

RELEASE = (
    "---\nname: Release day\ntype: project\nupdated: 2020-01-01\n---\n\nWe release on Thursdays.\n"
)


def remember(scene: Scene, path: str, text: str) -> None:
    scene.write(f"memory/{path}", text)


async def test_a_session_without_a_memory_folder_has_no_memory(scene: Scene):
    async with scene.play() as play:
        await play.run()
        names = {spec.name for spec in play.model.requests[0].tools}
        assert not any(name.startswith("memory") for name in names)
        assert await play.events(ContextAdded) == []


async def test_memories_relevant_to_a_message_are_added_as_quoted_notes(scene: Scene):
    remember(scene, "MEMORY.md", "# Memory\n\n- [Release day](project_release.md): when\n")
    remember(scene, "project_release.md", RELEASE)
    remember(scene, "lunch.md", "Lunch is at noon.")
    async with scene.play(DONE, DONE, DONE) as play:
        await play.run("Hello there.")
        await play.run("On which day do we release?")
        await play.run("And do we release on that day in May?")
        index, recalled = await play.events(ContextAdded)
        assert "> - [Release day](project_release.md): when" in index.text
        assert "project_release.md:7, " in recalled.text
        assert " days old, written by others, not verified]\n> We release on Th" in recalled.text
        assert "Lunch" not in recalled.text
        (event,) = await play.events(MemoryRecalled)
        assert (event.path, event.rank, event.store_id) == ("project_release.md", 1, "agent")
        assert "We release on Thursdays." not in play.model.requests[1].system


async def test_an_agent_searches_reads_writes_and_deletes_memories(scene: Scene):
    remember(scene, "project_release.md", RELEASE)
    new = {
        "name": "Answer style",
        "description": "how to answer Anna",
        "text": "Short answers.",
        "type": "feedback",
    }
    async with scene.play(
        calls("memory_search", query="release day"),
        calls("memory_read", path="project_release.md"),
        calls("memory_write", note=new, reason="she said so"),
        calls("memory_forget", path="project_release.md", reason="no longer true"),
        calls("memory_read", path="project_release.md"),
        calls("memory_write", note={"name": ""}, reason="?"),
        DONE,
    ) as play:
        waiting = await play.run("What do you know?")
        assert waiting.reason == "requires_action"
        question = await play.asked()
        assert "+Short answers." in (question.preview or "")
        waiting = await play.allow(waiting)
        assert (await play.allow(waiting)).ok
        found, read, written, forgotten, gone, wrong = await play.results()
        assert "> We release on Thursdays." in found
        assert read == f"written by others, not verified\n{RELEASE}"
        assert written == "Remembered as feedback_answer_style.md."
        assert forgotten == "Forgot project_release.md."
        assert "there is no memory" in gone
        assert "note" in wrong
        events = await play.events(MemoryWritten)
        assert [(event.operation, event.path, event.trust) for event in events] == [
            ("created", "feedback_answer_style.md", "agent"),
            ("deleted", "project_release.md", None),
        ]
    assert "Short answers." in scene.read("memory/feedback_answer_style.md")
    assert "Answer style" in scene.read("memory/MEMORY.md")


async def test_a_rule_allows_an_agent_to_write_memories_without_approval(scene: Scene):
    remember(scene, "lunch.md", "Lunch is at noon.")
    note = {"name": "Dinner", "description": "when", "text": "At seven."}
    async with scene.play(calls("memory_write", note=note, reason="told"), DONE) as play:
        await play.session.permit(leave("memory_write"))
        assert (await play.run("Remember dinner.")).ok
    assert "At seven." in scene.read("memory/reference_dinner.md")


async def test_an_agent_searches_its_documents_and_learns_what_they_do_not_cover(scene: Scene):
    scene.write("knowledge/returns.md", "# Returns\n\nGoods are sent back within 30 days.\n")
    async with scene.play(
        calls("knowledge_search", query="When are goods sent back?"),
        calls("knowledge_search", query="Who won the match?"),
        DONE,
    ) as play:
        assert (await play.run()).ok
        quoted, missing = await play.results()
    assert "[returns.md:1, Returns]\n> # Returns" in quoted
    assert "> Goods are sent back within 30 days." in quoted
    assert missing.startswith("No document covers that.")


async def test_a_small_model_picks_at_most_five_memories_from_their_list(scene: Scene):
    for number in range(8):
        text = f"---\nname: Fact {number}\ndescription: about {number}\n---\n\nBody {number}.\n"
        remember(scene, f"fact_{number}.md", text)
    small = "anthropic:claude-haiku-4-5"
    names = [f"agent/fact_{number}.md" for number in range(7)]
    picked = json.dumps({"memories": ["agent/../secret.md", *names]})
    environ = {"HOME": str(scene.home), "PATH": "/usr/bin:/bin", "MAINSPRING_RECALL_MODEL": small}
    async with scene.play(DONE, DONE, environ=environ) as play:
        model = Scripted(says(picked), says("not JSON"))
        play.runtime.models.put(play.runtime.models.resolve(small), model)
        await play.run()
        await play.run("And now?")
        question = render_message(model.requests[0].messages[0])
        assert "- agent/fact_3.md: Fact 3 (reference): about 3" in question
        assert question.rstrip().endswith("Message:\ndo it")
        recalled = await play.events(MemoryRecalled)
        assert {event.path for event in recalled} == {f"fact_{number}.md" for number in range(5)}
        assert all(event.score_parts["picked"] == 1 for event in recalled)
        requests = await play.events(ModelRequestEnded)
        assert [item.purpose for item in requests].count("recall") == 2
        told = [render_message(item) for item in play.model.requests[1].messages]
        assert ("> Body 4." in "".join(told), "> Body 5." in "".join(told)) == (True, False)


async def test_the_folder_of_an_openclaw_agent_works_unchanged(scene: Scene):
    scene.write("SOUL.md", "You are patient.")
    scene.write("USER.md", "The user is Anna.")
    scene.write("MEMORY.md", "- Anna likes tea.\n" + "x" * 60_000)
    settings = read_settings(folder=scene.workspace, environ={"HOME": str(scene.home)})
    agent = agent_selection(settings).open(RunOptions()).agent
    note = {"name": "Dinner", "description": "when", "text": "At seven."}
    async with scene.runtime() as runtime:
        model = Scripted(calls("memory_write", note=note, reason="told"), DONE)
        runtime.models.put(MODEL, model)
        session = await runtime.start(replace(agent, model=MODEL), "Hello")
        await session.permit(leave("memory_write"))
        assert await session.run() is not None
        events = await session.events()
        (shot, *_) = await read_shots(session.log, await session.log.session(session.id))
    (opening,) = [e.payload.text for e in events if isinstance(e.payload, ContextAdded)]
    assert "> - Anna likes tea. [MEMORY.md of the workspace]\n" in opening
    assert len(opening) < 2_200
    parts = {(part.place, part.source): part.reason for part in request_parts(shot, events)}
    assert {("system", "SOUL.md"), ("system", "USER.md")} <= parts.keys()
    assert parts["messages", "memory"]
    assert "tea" not in "".join(model.requests[0].system)
    assert "At seven." in scene.read("memory/reference_dinner.md")
    assert scene.read("MEMORY.md").startswith("- Anna likes tea.")


async def test_a_session_without_memory_neither_reads_nor_writes_it(scene: Scene):
    remember(scene, "project_release.md", RELEASE)
    async with scene.runtime() as runtime:
        agent = replace(at_work(), memory="off")
        runtime.models.put(MODEL, model := Scripted(otherwise=DONE))
        session = await runtime.start(agent, "Always release on Fridays. When do we release?")
        assert await session.run() is not None
        events = [event.payload for event in await session.events()]
    assert not [item for item in events if isinstance(item, ContextAdded | MemoryRecalled)]
    assert not [spec for spec in model.requests[0].tools if spec.name.startswith("memory")]
    assert [file.name for file in (scene.workspace / "memory").iterdir()] == ["project_release.md"]


async def test_a_full_memory_tells_the_model_how_to_make_room(scene: Scene):
    remember(scene, "lunch.md", "Lunch is at noon.")
    note = {"name": "Dinner", "description": "when", "text": "At seven."}
    environ = {"HOME": str(scene.home), "PATH": "/usr/bin:/bin", "MAINSPRING_MEMORY_MAX_FILES": "1"}
    async with scene.play(
        calls("memory_write", note=note, reason="told"), DONE, environ=environ
    ) as play:
        await play.session.permit(leave("memory_write"))
        assert (await play.run("Remember dinner.")).ok
        (refused,) = await play.results()
    assert "this scope has 1 memories, and the quota is 1. Merge or forget" in refused
    assert not (scene.workspace / "memory/reference_dinner.md").exists()


REVIEWER = Subagent(
    name="team:code reviewer",
    description="reviews",
    prompt="Review.",
    tools=("read",),
    memory="project",
)


async def test_a_subagent_has_only_the_memory_that_its_file_declares(scene: Scene):
    """And no other."""
    remember(scene, "project_release.md", RELEASE)
    place = ".claude/agent-memory/team-code-reviewer"
    scene.write(f"{place}/MEMORY.md", "- Look at error handling first.\n")
    note = {"name": "Style", "description": "how", "text": "Tabs are fine here."}
    agent = replace(at_work(), subagents=[REVIEWER])
    async with scene.runtime() as runtime:
        model = Scripted(
            calls("agent", type=REVIEWER.name, prompt="Review it.", description="review"),
            calls("memory_write", note=note, reason="seen"),
            calls("memory_read", path="project_release.md"),
            says("reviewed"),
            DONE,
        )
        runtime.models.put(MODEL, model)
        session = await runtime.start(agent, "do it")
        await session.permit(leave("memory_write"))
        assert await session.run() is not None
        events = [event.payload for event in await session.events()]
    (written,) = [item for item in events if isinstance(item, MemoryWritten)]
    assert (written.store_id, written.path) == (f"agent:{REVIEWER.name}", "reference_style.md")
    assert "Tabs are fine here." in scene.read(f"{place}/reference_style.md")
    opened = [item.text for item in events if isinstance(item, ContextAdded)]
    assert any("> - Look at error handling first." in text for text in opened)
    denied = [plain_text(e.content) for e in events if isinstance(e, AgentToolResult)]
    assert any("there is no memory project_release.md" in text for text in denied)


async def test_an_agent_adds_to_team_memories_only_if_a_person_approves(
    scene: Scene,
):
    team = scene.outside / "team"
    scene.write(team / "project_release.md", RELEASE)
    scene.write(scene.home / ".mainspring/team-memory", f"{team}\n")
    note = {"name": "Dinner", "description": "when", "text": "At seven."}
    path = "project_release.md"
    async with scene.play(
        calls("memory_read", path=path, scope="team"),
        calls("memory_write", note=note, reason="told", scope="team"),
        calls("memory_forget", path=path, reason="old"),
        DONE,
    ) as play:
        for tool in ("memory_write", "memory_forget"):
            await play.session.permit(leave(tool))
        waiting = await play.run("Always eat dinner at seven. On which day do we release?")
        recalled = [(event.store_id, event.path) for event in await play.events(MemoryRecalled)]
        assert recalled[0] == ("team", path)
        assert waiting.reason == "requires_action", "whatever the rules allow"
        assert not (team / "reference_dinner.md").exists()
        waiting = await play.allow(waiting)
        assert "At seven." in (team / "reference_dinner.md").read_text()
        assert waiting.reason == "requires_action"
        await play.deny(waiting, "we need it")
    assert (team / path).read_text() == RELEASE
    assert sorted(file.name for file in team.glob("feedback*")) == [], "nothing by itself"


async def test_team_memories_inside_the_workspace_are_not_used(scene: Scene):
    scene.write("team/project_release.md", RELEASE)
    scene.write(scene.home / ".mainspring/team-memory", str(scene.workspace / "team"))
    async with scene.play() as play:
        await play.run("On which day do we release?")
        assert await play.events(MemoryRecalled) == []
    assert any("team" in warning for warning in scene.warnings)
