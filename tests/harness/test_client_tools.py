"""Tools of ours that the client does: it has hands of its own."""

from pathlib import Path

import msgspec
from tests.harness.session_setup import echo, stage
from tests.harness.test_tool_pipeline import RecordingAuthorizer

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.content import TextBlock
from mainspring.core.events import UserInterrupt, UserToolConfirmation, UserToolResult
from mainspring.core.tool import Traits
from mainspring.harness.authorizer import Decision
from mainspring.harness.stop_reasons import Ended

HANDED = Traits(by_client=True)


async def test_an_allowed_client_tool_call_waits_for_the_clients_result(tmp_path: Path):
    model = Scripted(calls("echo", x="1"), says("done"))
    ran: list[str] = []
    async with stage(tmp_path, model, echo(traits=HANDED, ran=ran)) as play:
        waiting = await play.play("go")
        assert waiting is not None
        [call_id] = waiting.waiting_for
        assert await play.play() is None  # a worker that wakes it finds nothing to do
        assert "tool_call.in_doubt" not in await play.kinds()
        result = UserToolResult(tool_use_id=call_id, content=(TextBlock("42"),))
        assert await play.play(result) == Ended("completed")
        assert b"42" in msgspec.json.encode(model.requests[1].messages[-1])
        assert ran == []


async def test_a_client_tool_call_that_needs_approval_is_handed_over_only_after_it(tmp_path: Path):
    model = Scripted(calls("echo", x="1"), says("done"))
    authorizer = RecordingAuthorizer(decision=Decision(decision="ask", gate="default"))
    async with stage(tmp_path, model, echo(traits=HANDED), authorizer=authorizer) as play:
        waiting = await play.play("go")
        assert waiting is not None
        [call_id] = waiting.waiting_for
        hasty = UserToolResult(tool_use_id=call_id, content=(TextBlock("hasty"),))
        await play.play(hasty)  # nobody has said yes: it counts for nothing
        assert "tool_call.started" not in await play.kinds()
        allowed = await play.play(UserToolConfirmation(tool_use_id=call_id, result="allow"))
        assert allowed == Ended("requires_action", waiting_for=(call_id,))
        result = UserToolResult(tool_use_id=call_id, content=(TextBlock("42"),))
        assert await play.play(result) == Ended("completed")
        assert b"hasty" not in msgspec.json.encode(model.requests[1].messages)


async def test_a_denial_or_an_interrupt_settles_a_client_tool_call_without_the_client(
    tmp_path: Path,
):
    model = Scripted(calls("echo", x="1"), says("then not"), calls("echo", x="2"))
    authorizer = RecordingAuthorizer(decision=Decision(decision="deny", gate="rule"))
    async with stage(tmp_path, model, echo(traits=HANDED), authorizer=authorizer) as play:
        assert await play.play("go") == Ended("completed")
        authorizer.decision = Decision(decision="allow", gate="rule")
        waiting = await play.play("again")
        assert waiting is not None
        [call_id] = waiting.waiting_for
        await play.play(UserInterrupt())
        late = UserToolResult(tool_use_id=call_id, content=(TextBlock("late"),))
        await play.play(late)
        assert len([kind for kind in await play.kinds() if kind == "agent.tool_result"]) == 2
