"""What comes in at the wrong moment is neither lost nor taken for something else."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import cast

import anyio
import msgspec
from tests.harness.session_setup import Stage, stage, texts

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.content import TextBlock
from mainspring.core.events import ToolCallInDoubt, UserInterrupt, UserMessage, UserToolConfirmation
from mainspring.core.model import Delta, Reply, Request, TextDelta, ToolSpec
from mainspring.core.tool import Call, InDoubtPolicy, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.loop import run
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Continue, Ended
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Append, Store


class AskingAuthorizer(AllowAll):
    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        decision = "ask" if call.input.get("x") == "ask" else "allow"
        return Decision(decision=decision, gate="rule")


def acting_tool(
    run: Callable[[Call], Awaitable[ToolResult]], in_doubt: InDoubtPolicy = "report"
) -> Tool:
    return Tool(
        spec=ToolSpec(name="act", description="", input_schema={}),
        run=run,
        traits=lambda _: Traits(in_doubt=in_doubt),
    )


async def pending_count(play: Stage) -> int:
    return len(await play.log.store.pending(play.session_id))


async def send_interrupt_and_message(play: Stage) -> None:
    with anyio.CancelScope(shield=True):  # the interrupt stops who sends it here
        await play.send(UserInterrupt(), "No, something else.")


async def test_events_without_effect_are_removed_from_the_inbox(tmp_path: Path):
    async with stage(tmp_path, Scripted(says("hello"))) as play:
        await play.play("hi")
        wrong = UserToolConfirmation(tool_use_id="sevt_nobody", result="allow")
        assert await play.play(wrong, UserInterrupt()) is None
        assert await pending_count(play) == 0
        assert (await play.kinds())[-2:] == ["user.tool_confirmation", "user.interrupt"]


async def test_a_message_that_arrives_as_the_run_ends_is_answered(tmp_path: Path):
    class Slow(AllowAll):
        async def before_stop(self, thread: Thread) -> Continue | Ended | None:
            if len(model.requests) == 1:
                await play.send("one more thing")
            return None

    model = Scripted(says("done"), says("that too"))
    async with stage(tmp_path, model, authorizer=Slow()) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.message") == ["done", "that too"]
        assert await play.continued() == ["inbox_message"]
        assert await play.play() is None


async def test_an_approval_that_arrives_while_other_calls_run_is_not_lost(tmp_path: Path):
    async def answer(call: Call) -> ToolResult:
        if call.input.get("x") != "ask":
            [asked] = [
                event.id
                for event in await play.events()
                if event.type == "agent.tool_use" and b'"ask"' in event.body
            ]
            await play.send(UserToolConfirmation(tool_use_id=asked, result="allow"))
        return ToolResult.text("ok")

    model = Scripted(calls("act", x="1") + calls("act", x="ask"), says("done"))
    async with stage(tmp_path, model, acting_tool(answer), authorizer=AskingAuthorizer()) as play:
        assert await play.play("go") == Ended("completed")
        assert await play.ended() == ["completed"]


async def test_an_interrupt_with_a_message_redirects_the_agent_to_the_message(tmp_path: Path):
    class Slow:
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            if len(request.messages) > 1:
                async for item in Scripted(says("something else then")).stream(request):
                    yield item
                return
            yield TextDelta("I do as")
            await send_interrupt_and_message(play)
            await anyio.sleep_forever()

    async with stage(tmp_path, Slow()) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.message") == ["I do as", "something else then"]
        assert await play.continued() == ["inbox_message"]


async def test_an_interrupt_with_a_message_settles_running_calls(tmp_path: Path):
    async def hang(call: Call) -> ToolResult:
        await send_interrupt_and_message(play)
        await anyio.sleep_forever()
        return ToolResult.text("never")

    model = Scripted(calls("act") + calls("act"), says("something else then"))
    async with stage(tmp_path, model, acting_tool(hang)) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("completed")
        sent = msgspec.json.encode(model.requests[1].messages[-1])
        assert sent.count(b"Interrupted by the user") == 2
        assert sent.index(b"Interrupted by") < sent.index(b"No, something else.")


class PowerCut(BaseException):
    pass


async def test_an_earlier_approval_does_not_answer_a_call_in_doubt(tmp_path: Path):
    ran: list[str] = []

    async def sign(call: Call) -> ToolResult:
        ran.append(call.id)
        if len(ran) <= 2:
            raise PowerCut
        return ToolResult.text("signed")

    async def die(*payloads: UserToolConfirmation) -> None:
        await play.send(*payloads)
        cut = False
        try:
            await run(await play.context())
        except* PowerCut:
            cut = True
        assert cut

    model = Scripted(calls("act", x="ask"), says("done"))
    async with stage(
        tmp_path, model, acting_tool(sign, "ask"), authorizer=AskingAuthorizer()
    ) as play:
        waiting = await play.play("go")
        assert waiting is not None
        [call_id] = waiting.waiting_for
        allowed = UserToolConfirmation(tool_use_id=call_id, result="allow")
        await die(allowed)
        await play.send(allowed)  # a second click, from before anybody knew of the crash
        assert await play.play() == Ended("requires_action", waiting_for=(call_id,))
        assert len(ran) == 1
        await die(allowed)  # a person looked, and it had not been done
        assert await play.play() == Ended("requires_action", waiting_for=(call_id,))
        assert len(ran) == 2, "that was an answer about the first attempt only"
        assert await play.play(allowed) == Ended("completed")
        assert len([e for e in await play.events() if isinstance(e.payload, ToolCallInDoubt)]) == 2


async def test_an_interrupt_withdraws_the_messages_before_it(tmp_path: Path):
    async def hang(call: Call) -> ToolResult:
        await play.send(UserMessage(content=(TextBlock("and then this"),)), UserInterrupt())
        await anyio.sleep_forever()
        return ToolResult.text("never")

    async with stage(tmp_path, Scripted(calls("act"), says("well")), acting_tool(hang)) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("interrupted_tools")
        assert await play.play() is None  # the user took back all that was asked before
        assert await play.play("go on") == Ended("completed")


class BusyStore:
    """A store with no connection left for a while. As every store does, it finishes what it has
    begun before its caller is cancelled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_waiting = anyio.Event()
        self.is_free = anyio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, append: Append) -> None:
        with anyio.CancelScope(shield=True):
            self.is_waiting.set()
            await self.is_free.wait()
            await self._store.append(append)


async def test_a_commit_survives_the_cancellation_of_its_waiter(tmp_path: Path):
    async with stage(tmp_path, Scripted(says("hello"))) as play:
        busy = BusyStore(play.log.store)
        writer = await SessionLog(cast("Store", busy)).hold(play.session_id, owner="worker")
        [event] = writer.stage(UserMessage(content=(TextBlock("kept"),)))
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(writer.commit)
                await busy.is_waiting.wait()
                group.cancel_scope.cancel()
                busy.is_free.set()
        assert (await play.events())[-1].id == event.id
