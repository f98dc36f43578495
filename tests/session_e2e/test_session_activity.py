"""What a session does now, or why it waits, stored beside its log: always the fold of the log."""

from dataclasses import replace

import anyio
from tests.session_e2e.session_setup import DONE, MODEL, Play, Scene, at_work, leave

from mainspring.capabilities.providers.scripted import Scripted, calls
from mainspring.core.events import EventsRedacted, SessionMoved
from mainspring.core.model import ToolSpec
from mainspring.core.sender import Sender
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.log.session_activity import fold_activity
from mainspring.log.session_lease import hold_session
from mainspring.log.store import ActivityNote
from mainspring.runtime.agent import Agent
from mainspring.runtime.approvals import ApprovalQuestion, request_approval, void_approval
from mainspring.runtime.session.activity_line import ActivityLine, read_lines
from mainspring.runtime.session.session_summary import summarize_session


async def line_of(play: Play) -> ActivityLine:
    """Its line, after a check that what is stored is the fold of the log."""
    log, id_ = play.session.log, play.session.id
    row = await log.session(id_)
    stored = await log.activity(row)
    folded = fold_activity(row.thread_id, await log.read(id_))
    assert row.activity is not None
    assert stored == folded
    [line] = await read_lines(log, [row])
    assert (await summarize_session(log, row)).status == line.status
    return line


async def test_a_line_says_what_a_session_does_and_what_it_waits_for(scene: Scene):
    lines: list[ActivityLine] = []

    async def look(call: Call) -> ToolResult:
        lines.append(await line_of(play))
        return ToolResult.text("seen")

    spec = ToolSpec(name="look", description="Looks.", input_schema={"type": "object"})
    script = [calls("look", path="a.txt"), calls("bash", command="touch  made.txt")]
    async with scene.play(*script, tools=[Tool(spec=spec, run=look)]) as play:
        await play.session.permit(leave("look"))
        assert (await line_of(play)).status == "unfinished", "its inbox has a first message"
        waits = await play.run()
        assert [(line.status, line.text) for line in lines] == [("running", "look: a.txt")]
        line = await line_of(play)
        assert (line.status, line.waits_for) == ("requires_action", "person")
        assert line.text == "waits for a person: bash: touch made.txt"
        await play.allow(waits)
        line = await line_of(play)
        assert (line.status, line.text, line.waits_for) == ("idle", "done", "message")
        await play.session.interrupt()
        assert (await line_of(play)).status == "idle", "an interrupt starts no run"
        await play.session.send("go on")
        line = await line_of(play)
        assert (line.status, line.waits_for) == ("unfinished", "process")


async def test_a_question_of_another_part_is_what_a_session_waits_for(scene: Scene):
    question = ApprovalQuestion(type="workflow_node", id="review", text="Merge it?")
    async with scene.play() as play:
        await play.run()
        async with hold_session(play.session.log, play.session.id) as writer:
            await request_approval(play.session.log, writer, question)
        line = await line_of(play)
        assert line.text == "waits for a person: workflow_node: Merge it?"
        assert line.waits_for == "person"
        async with hold_session(play.session.log, play.session.id) as writer:
            await void_approval(writer, question.approval_id, "withdrawn")
        assert (await line_of(play)).text == "done"


async def test_subagents_are_named_by_what_they_do(scene: Scene):
    texts: list[str] = []

    async def look(call: Call) -> ToolResult:
        row = await log.session(call.session_id)
        texts.extend(line.text for line in await read_lines(log, [row]))
        return ToolResult.text("seen")

    spec = ToolSpec(name="look", description="Looks.", input_schema={"type": "object"})
    finder = Agent(
        name="finder", description="Finds.", built_ins=(), tools=[Tool(spec=spec, run=look)]
    )
    delegate = calls("agent", type="finder", description="look", prompt="look")
    async with scene.runtime() as runtime:
        log = runtime.log
        model = Scripted(delegate, calls("look", path="b.txt"), DONE, DONE)
        runtime.models.put(MODEL, model)
        session = await runtime.start(replace(at_work(), subagents=[finder]), "do it")
        await session.permit(leave("look"))
        assert await session.run() is not None
        assert texts == ["finder: look: b.txt"]
        assert (await line_of(Play(runtime, session, model))).text == "done"


async def test_texts_are_forgotten_when_events_are_redacted_and_a_moved_session_says_so(
    scene: Scene,
):
    async with scene.play(calls("bash", command="touch hunter2")) as play:
        await play.run()
        log, id_ = play.session.log, play.session.id
        assert "hunter2" in (await line_of(play)).text
        sender = Sender(kind="person", id="cli:1")
        async with hold_session(log, id_) as writer:
            await writer.append(EventsRedacted(redactions=(), reason="a secret", by=sender))
        assert "hunter2" not in ((await log.session(id_)).activity or "hunter2")
        assert (await line_of(play)).text == "waits for a person: bash"
        async with hold_session(log, id_) as writer:
            await writer.append(SessionMoved(transfer_id="tran_1"))
        line = await line_of(play)
        assert (line.status, line.waits_for) == ("moved", "store")


async def test_forks_and_sessions_of_older_versions_are_folded_once_and_stored(scene: Scene):
    async with scene.play(calls("bash", command="touch made.txt")) as play:
        await play.run()
        log = play.session.log
        fork = await play.session.fork()
        row = await log.session(fork.id)
        assert row.activity is None
        [line] = await read_lines(log, [row])
        assert line.status == "requires_action"
        row = await log.session(fork.id)
        assert row.activity is not None, "the next reader need not fold it"
        await log.store.note_activity(ActivityNote(fork.id, row.head.seq + 1, "{}", "idle"))
        assert (await log.session(fork.id)).activity == row.activity, "the log has not got so far"
        stale = (row.activity or "").replace(f'"seq":{row.head.seq}', '"seq":1')
        await log.store.note_activity(
            ActivityNote(fork.id, row.head.seq, stale, "idle")
        )  # as of an older program
        with anyio.fail_after(60):
            [again] = await read_lines(log, [await log.session(fork.id)])
        assert again == line
        assert (await log.session(fork.id)).activity == row.activity
