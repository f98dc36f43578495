"""A tool asks a person in mid-call: the session waits, over restarts, and the call goes on."""

from hashlib import sha256

import pytest
from msgspec import structs
from tests.session_e2e.session_setup import Scene, begin, leave, read_results

from mainspring.capabilities.providers.scripted import calls
from mainspring.config import read_settings
from mainspring.core.errors import EventIdTaken, InvalidInput, NotFound, StaleVersion
from mainspring.core.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ApprovalVoided,
    ToolCallInDoubt,
    ToolCallStarted,
)
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, PersonQuestion, Tool, ToolResult
from mainspring.log.session_lease import hold_session
from mainspring.runtime.approvals import (
    MAX_EVIDENCE_CHARS,
    Answer,
    ApprovalQuestion,
    answer_to,
    evidence_of,
    is_approved,
    read_approvals,
    request_approval,
    submit_answer,
    void_approval,
)
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_summary import read_open_calls
from mainspring.wiring.runtime_assembly import open_runtime

SEAT = {
    "type": "object",
    "properties": {
        "seat": {"type": "string", "enum": ["aisle", "window"]},
        "bags": {"type": "integer", "minimum": 0, "maximum": 3},
    },
    "required": ["seat"],
}


def booking_tool(*texts: str) -> Tool:
    """A tool that asks one question after the other, and then says what was answered."""

    async def book(call: Call) -> ToolResult:
        answers: list[str] = []
        for number, text in enumerate(texts, 1):
            question = PersonQuestion(key=str(number), text=text, form_schema=SEAT)
            answer = call.answer_to(question)
            if answer is None:
                return ToolResult.asking(question)
            answers.append(f"{answer.decision} {answer.form}")
        return ToolResult.text("; ".join(answers))

    spec = ToolSpec(name="book", description="Books.", input_schema={"type": "object"})
    return Tool(spec=spec, run=book)


async def test_a_question_survives_restarts_and_its_answer_reaches_the_same_call(scene: Scene):
    tools = [booking_tool("Which seat out?", "Which seat back?")]
    async with scene.play(calls("book"), tools=tools) as play:
        await play.session.permit(leave("book"))
        waits = await play.run()
        assert waits.reason == "requires_action"
        [call_id] = waits.waiting_for
        for form in (None, {"seat": "roof"}, {"seat": "aisle", "bags": 9}, {"sea": 1}):
            with pytest.raises(InvalidInput, match="form"):
                await play.session.answer(call_id, "allow", form=form)
    async with scene.play(tools=tools, go_on=play.session.id) as again:  # as in a new process
        assert await again.session.run() is None, "nobody has answered"
        await again.session.answer(call_id, "allow", form={"seat": "aisle", "bags": 2})
        assert (await again.run()).reason == "requires_action", "it asks the second question"
        await again.session.answer(call_id, "deny", message="none left")
        assert (await again.run()).ok
        [result] = read_results(again.model.requests[-1])
        assert result == "allow {'seat': 'aisle', 'bags': 2}; deny None"
        requests = await again.events(ApprovalRequested)
        assert [item.question for item in requests] == ["Which seat out?", "Which seat back?"]
        assert await again.events(ToolCallInDoubt) == [], "a call that asks is not in doubt"
        assert [item.attempt for item in await again.events(ToolCallStarted)] == [1, 2, 3]


async def test_an_answer_to_a_changed_question_is_void(scene: Scene):
    async with scene.play(calls("book"), tools=[booking_tool("Seat 1?")]) as play:
        await play.session.permit(leave("book"))
        [call_id] = (await play.run()).waiting_for
        await play.session.answer(call_id, "allow", form={"seat": "aisle"})
    async with scene.play(tools=[booking_tool("Seat 2?")], go_on=play.session.id) as again:
        assert (await again.run()).reason == "requires_action"
        [void] = await again.events(ApprovalVoided)
        first, second = await again.events(ApprovalRequested)
        assert (void.approval_id, second.question) == (first.approval_id, "Seat 2?")
        await again.session.interrupt()
        await again.run()
        voided = [item.approval_id for item in await again.events(ApprovalVoided)]
        assert voided == [first.approval_id, second.approval_id], "the call has ended"


async def test_a_tool_that_asks_forever_fails(scene: Scene):
    async def nag(_: Call) -> ToolResult:
        return ToolResult.asking(PersonQuestion(key="1", text="Sure?"))

    spec = ToolSpec(name="nag", description="Asks.", input_schema={"type": "object"})
    async with scene.play(calls("nag"), tools=[Tool(spec=spec, run=nag)]) as play:
        await play.session.permit(leave("nag"))
        [call_id] = (await play.run()).waiting_for
        await play.session.answer(call_id, "allow")
        assert (await play.run()).ok
        assert read_results(play.model.requests[-1]) == [
            "Not done: the tool repeats a question that was already answered."
        ]


def merge_question(diff: str, *, base: str = "v1") -> ApprovalQuestion:
    return ApprovalQuestion(
        type="promotion",
        id="candidate-1",
        text="Promote it?",
        evidence=(evidence_of("diff", diff),),
        choices=("to a tenth", "to all"),
        base=base,
    )


async def test_a_change_is_approved_only_in_the_version_that_was_shown(scene: Scene):
    async with scene.play() as play:
        await play.run()
        log, session_id, sender = play.session.log, play.session.id, play.runtime.sender
        shown, newer = merge_question("+a"), merge_question("+b")
        with pytest.raises(NotFound):
            await answer_to(log, session_id, shown)
        async with hold_session(log, session_id) as writer:
            first = await request_approval(log, writer, shown)
            assert (await request_approval(log, writer, shown)).id == first.id == shown.approval_id
        assert await answer_to(log, session_id, shown) is None
        assert await is_approved(log, session_id, first.id, shown.hash) is None
        [pending] = await read_open_calls(log, await log.session(session_id))
        for wrong in (Answer(decision="allow"), Answer(decision="allow", choice="to none")):
            with pytest.raises(InvalidInput, match="choice"):
                await submit_answer(log, session_id, pending, wrong, sender=sender)
        answer = Answer(decision="allow", choice="to all", text="at last")
        await submit_answer(log, session_id, pending, answer, sender=sender)
        other = Answer(decision="deny")
        with pytest.raises(EventIdTaken):
            await submit_answer(log, session_id, pending, other, sender=sender)
        found = await answer_to(log, session_id, shown)
        assert found is not None
        assert (found.decision, found.choice, found.text) == ("allow", "to all", "at last")
        assert await is_approved(log, session_id, first.id, shown.hash) is True
        for changed in (newer, merge_question("+a", base="v2")):
            with pytest.raises(StaleVersion):
                await answer_to(log, session_id, changed)
            with pytest.raises(StaleVersion):
                await is_approved(log, session_id, first.id, changed.hash)


async def test_a_question_that_was_replaced_or_taken_back_is_void(scene: Scene):
    async with scene.play() as play:
        await play.run()
        log, session_id = play.session.log, play.session.id
        shown, newer = merge_question("+a"), merge_question("+b")
        async with hold_session(log, session_id) as writer:
            first = await request_approval(log, writer, shown)
        [pending] = await read_open_calls(log, await log.session(session_id))
        answer = Answer(decision="allow", choice="to all")
        await submit_answer(log, session_id, pending, answer, sender=play.runtime.sender)
        async with hold_session(log, session_id) as writer:
            second = await request_approval(log, writer, newer)
        with pytest.raises(StaleVersion):
            await answer_to(log, session_id, shown)
        with pytest.raises(NotFound):
            await is_approved(log, session_id, "aprv_0", shown.hash)
        await play.session.run()
        assert [item.approval_id for item in await play.events(ApprovalAnswered)] == [first.id]
        assert [item.is_void for item in await read_approvals(log, session_id)] == [True, False]
        assert await is_approved(log, session_id, second.id, newer.hash) is None
        async with hold_session(log, session_id) as writer:
            await void_approval(writer, second.id, "the candidate was withdrawn")
        with pytest.raises(StaleVersion):
            await answer_to(log, session_id, newer)
        assert await read_open_calls(log, await log.session(session_id)) == []


async def test_long_evidence_is_shown_in_part_and_its_hash_covers_all_of_it(scene: Scene):
    diff = "+" * (MAX_EVIDENCE_CHARS + 1)
    shown, changed = evidence_of("diff", diff), evidence_of("diff", diff[:-1] + "-")
    assert len(shown.text) < len(diff) + 3
    assert shown.text == changed.text
    assert shown.hash == sha256(diff.encode()).hexdigest()
    assert merge_question(diff).hash != merge_question(diff[:-1] + "-").hash
    same = ("a", "a")
    async with scene.play() as play:
        await play.run()
        async with hold_session(play.session.log, play.session.id) as writer:
            for choices in (same, ("",), ("x" * 200,)):
                question = structs.replace(merge_question("+a"), choices=choices)
                with pytest.raises(InvalidInput, match="choices"):
                    await request_approval(play.session.log, writer, question)


async def test_invalid_questions_of_the_model_are_not_asked(scene: Scene):
    same = [{"label": "A"}, {"label": "A"}]
    asked = {"question": "Which?", "header": "Way", "options": same}
    settings = read_settings(folder=scene.workspace, environ={"HOME": str(scene.home)})
    options = RunOptions(workspace=scene.workspace, is_attended=True)
    async with open_runtime(settings, options=options) as runtime:
        play = await begin(runtime, calls("ask_user", questions=[asked]))
        assert (await play.run()).ok
        [text] = read_results(play.model.requests[-1])
        assert "two have the same label" in text
