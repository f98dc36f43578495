"""Replay: whatever happened to a session happens again, and a change is found where it shows."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.harness.session_setup import FACTS, Stage, always, echo, stage
from tests.harness.test_compaction import GOAL, SMALL, TINY, Worker, is_summary, reader

from mainspring.capabilities.providers.scripted import (
    ScriptAnswer,
    Scripted,
    calls,
    fails,
    says,
    thinks,
)
from mainspring.core.content import TextBlock
from mainspring.core.events import (
    ContextAdded,
    UserCustomToolResult,
    UserToolConfirmation,
)
from mainspring.core.model import Delta, Reply, Request, TextDelta
from mainspring.core.tool import Call, InDoubtPolicy, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.context.working_state import WORKING_STATE
from mainspring.harness.limits import Limits
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Continue, Ended
from mainspring.log.transfer import export_lines
from mainspring.runtime.agent import Agent
from mainspring.testing.replay import ReplayResult, replay, replay_file

RECORDINGS = Path(__file__).parents[1] / "fixtures/recordings"


async def replay_play(play: Stage, **options: object) -> ReplayResult:
    with anyio.fail_after(60):
        return await replay(
            play.log,
            play.session_id,
            facts=lambda _: play.facts,
            **options,  # pyright: ignore[reportArgumentType] (options of replay, by name)
        )


async def check_identical(play: Stage, *, calls: int) -> None:
    before = await play.events()
    found = await replay_play(play)
    assert (found.divergence, found.calls) == (None, calls)
    assert await play.events() == before


class Stop(BaseException):
    """Ends a worker where it is, as a kill would."""


async def run_until_killed(play: Stage, *said: str) -> None:
    """Run until something dies, and forget what was not committed."""
    with pytest.RaisesGroup(Stop, flatten_subgroups=True, allow_unwrapped=True):
        await play.play(*said)


async def test_a_conversation_with_tools_replays_identically(tmp_path: Path):
    model = Scripted(
        thinks("hm", signature="s") + says("I look.") + calls("echo", x="1") + calls("echo", x="2"),
        calls("fly"),
        says("done"),
        says("you are welcome"),
    )
    async with stage(tmp_path, model, echo()) as play:
        assert await play.play("go") == Ended("completed")
        assert await play.play("thanks", "very much") == Ended("completed")
        await check_identical(play, calls=4)


async def test_concurrent_calls_and_invalid_inputs_replay_identically(tmp_path: Path):
    class Refusing:
        @staticmethod
        def invalid(given: object) -> str | None:
            return "x must be small." if given == {"x": "large"} else None

    tool = echo(traits=Traits(concurrent=True))
    strict = Tool(spec=tool.spec, run=tool.run, traits=tool.traits, invalid=Refusing.invalid)
    model = Scripted(
        calls("echo", x="1") + calls("echo", x="large") + calls("echo", x="2"), says("done")
    )
    async with stage(tmp_path, model, strict) as play:
        await play.play("go")
        await check_identical(play, calls=2)


class AskingAuthorizer(AllowAll):
    def __init__(self) -> None:
        self.sent_back = False

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        if call.input.get("x") == "no":
            return Decision(decision="deny", gate="rule", rule="no", reason="x is no")
        return Decision(decision="ask", gate="mode")

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        if self.sent_back:
            return None
        self.sent_back = True
        return Continue("stop_hook_feedback", "The tests were not run.")


async def test_answers_denials_and_feedback_are_replayed(tmp_path: Path):
    model = Scripted(
        calls("echo", x="1") + calls("echo", x="no"), says("done"), says("now they were")
    )
    async with stage(tmp_path, model, echo(), authorizer=AskingAuthorizer()) as play:
        ended = await play.end_of("go")
        assert ended.reason == "requires_action"
        [waiting] = ended.waiting_for
        confirmation = UserToolConfirmation(tool_use_id=waiting, result="allow")
        assert await play.play(confirmation) == Ended("completed")
        await check_identical(play, calls=3)


async def test_results_of_client_tools_are_replayed(tmp_path: Path):
    model = Scripted(calls("pick", x="1"), says("done"))
    async with stage(tmp_path, model, custom_tools=frozenset({"pick"})) as play:
        ended = await play.end_of("go")
        result = UserCustomToolResult(
            custom_tool_use_id=ended.waiting_for[0], content=(TextBlock("blue"),)
        )
        assert await play.play(result) == Ended("completed")
        await check_identical(play, calls=2)


class TalkingModel:
    """Says something, then waits for ever."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        yield TextDelta("I was about to")
        await anyio.sleep_forever()


async def test_an_interrupted_reply_and_its_continuation_replay_identically(tmp_path: Path):
    async with stage(tmp_path, TalkingModel()) as play:
        heard = anyio.Event()
        play.emit = lambda _: heard.set()
        assert await play.interrupted(heard, "go") == Ended("interrupted_streaming")
        play.model = Scripted(says("fine"))
        assert await play.play("go on") == Ended("completed")
        await check_identical(play, calls=2)


async def test_interrupted_tools_replay_identically(tmp_path: Path):
    started = anyio.Event()

    async def hang(call: Call) -> ToolResult:
        started.set()
        await anyio.sleep_forever()
        return ToolResult.text("never")

    tool = Tool(spec=echo("hang").spec, run=hang)
    model = Scripted(calls("hang") + calls("echo", x="1"), says("what now?"))
    async with stage(tmp_path, model, tool, echo()) as play:
        assert await play.interrupted(started, "go") == Ended("interrupted_tools")
        assert await play.play("go on") == Ended("completed")
        await check_identical(play, calls=2)


class DyingModel:
    """Dies in the middle of every reply."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        yield TextDelta("I was ab")
        raise Stop


async def test_a_worker_death_during_a_reply_is_replayed(tmp_path: Path):
    async with stage(tmp_path, DyingModel()) as play:
        await run_until_killed(play, "go")
        await check_identical(play, calls=1)
        play.model = Scripted(says("here I am"))
        assert await play.play() == Ended("completed")
        await check_identical(play, calls=2)


def deadly_tool(policy: InDoubtPolicy) -> Tool:
    """A tool whose worker dies in its first call."""
    lives = [Stop()]

    async def act(call: Call) -> ToolResult:
        if lives:
            raise lives.pop()
        return ToolResult.text(f"did {call.input.get('x')}")

    return replace(echo("act"), run=act, traits=always(Traits(in_doubt=policy)))


@pytest.mark.parametrize("policy", ["retry", "report"])
async def test_a_worker_death_during_a_tool_call_is_replayed(tmp_path: Path, policy: InDoubtPolicy):
    model = Scripted(calls("act"), says("done"))
    async with stage(tmp_path, model, deadly_tool(policy)) as play:
        await run_until_killed(play, "go")
        await check_identical(play, calls=1)
        assert await play.play() == Ended("completed")
        await check_identical(play, calls=2)


async def test_failures_and_truncated_replies_are_replayed(tmp_path: Path):
    model = Scripted(
        says("too lo", reason="max_tokens"),
        says("too long again", reason="max_tokens"),
        says("and the rest"),
        fails("overloaded", "busy"),
        says("back"),
    )
    async with stage(tmp_path, model) as play:
        assert await play.play("go") == Ended("completed")
        assert (await play.end_of("more")).reason == "model_error"
        assert await play.play("and now?") == Ended("completed")
        await check_identical(play, calls=5)


async def test_a_reached_limit_is_replayed_without_knowing_the_limit(tmp_path: Path):
    model = Scripted(otherwise=lambda request: calls("echo", x=str(len(request.messages))))
    async with stage(tmp_path, model, echo(), limits=Limits(max_turns=3)) as play:
        assert (await play.end_of("go")).reason == "max_turns"
        await check_identical(play, calls=3)


async def test_a_message_that_arrived_at_the_end_of_a_run_is_replayed(tmp_path: Path):
    class Late(AllowAll):
        def __init__(self) -> None:
            self.is_due = True

        async def before_stop(self, thread: Thread) -> Continue | Ended | None:
            if self.is_due:
                self.is_due = False
                await play.send("one more thing")
            return None

    async with stage(tmp_path, Scripted(says("a"), says("b")), authorizer=Late()) as play:
        assert await play.play("go") == Ended("completed")
        await check_identical(play, calls=2)


@pytest.mark.parametrize(
    "summary", [None, fails("overloaded"), says("blah " * 20_000)], ids=["good", "failed", "long"]
)
async def test_compactions_and_summaries_replay_identically(
    tmp_path: Path, summary: ScriptAnswer | None
):
    model = Scripted(otherwise=Worker(60, summary))
    async with stage(tmp_path, model, reader(60), facts=TINY) as play:
        await play.play(GOAL)
        assert sum(map(is_summary, model.requests)) > 0
        turns = [request for request in model.requests if not is_summary(request)]
        await check_identical(play, calls=len(turns))


@pytest.mark.parametrize("summary", ["Read.\nDecided:\n- not to stop", None])
async def test_the_working_state_is_replayed_once(tmp_path: Path, summary: str | None):
    worker = Worker(40, fails("overloaded") if summary is None else says(summary))
    decision = says("I'll use the index instead of reading every page.")
    model = Scripted(decision, otherwise=worker)
    async with stage(tmp_path, model, reader(60), facts=TINY) as play:
        await play.play("How will you do it?")
        await play.play(GOAL)
        states = [
            event.payload.text
            for event in await play.events()
            if isinstance(event.payload, ContextAdded) and event.payload.source == WORKING_STATE
        ]
        assert "I'll use the index instead of" in states[0]
        assert summary is None or any("not to stop" in text for text in states)
        turns = [request for request in model.requests if not is_summary(request)]
        await check_identical(play, calls=len(turns))


async def test_a_request_refused_as_too_long_is_refused_again(tmp_path: Path):
    steps = [calls("read", path=f"book/{page}.txt") for page in range(9)]
    model = Scripted(*steps, fails("prompt_too_long"), says("done"))
    async with stage(tmp_path, model, reader(), facts=SMALL) as play:
        assert await play.play(GOAL) == Ended("completed")
        await check_identical(play, calls=11)


async def test_a_replay_from_an_event_or_of_a_fork_is_identical(tmp_path: Path):
    model = Scripted(calls("echo", x="1"), says("a"), says("b"), says("c"))
    async with stage(tmp_path, model, echo()) as play:
        await play.play("one")
        await play.play("two")
        for start in range(1, len(await play.events()) + 1):
            assert (await replay_play(play, start=start)).divergence is None
        fork = await play.log.fork(play.session_id, at=len(await play.events()))
        play.session_id = fork.id
        await play.play("three")
        await check_identical(play, calls=1)


async def test_changed_instructions_differ_at_the_first_call(tmp_path: Path):
    async with stage(tmp_path, Scripted(says("hello"))) as play:
        await play.play("hi")
        agent = Agent(model=FACTS.id, instructions="Be rude.")
        found = await replay_play(play, agent=agent)
        assert found.divergence is not None
        assert found.divergence.call == 1
        assert any("+Be rude." in line for line in found.divergence.diff)
        with pytest.raises(AssertionError, match="the model request has changed"):
            found.check()


async def test_an_exported_session_replays_from_its_file(tmp_path: Path):
    async with stage(tmp_path, Scripted(calls("echo", x="1"), says("done")), echo()) as play:
        await play.play("go")
        path = tmp_path / "session.jsonl"
        lines = [line async for line in export_lines(play.log, play.session_id)]
        path.write_bytes(b"\n".join(lines))
        assert (await anyio.to_thread.run_sync(replay_file, path)).ok


async def test_a_run_that_ends_earlier_is_a_divergence(tmp_path: Path):
    async with stage(tmp_path, Scripted(calls("echo", x="1"), says("done")), echo()) as play:
        await play.play("go")
        agent = Agent(model=FACTS.id, limits=Limits(max_turns=1))
        assert (await replay_play(play, agent=agent)).divergence is not None


@pytest.mark.parametrize("name", ["continued_and_in_doubt", "forked_during_a_call"])
def test_recordings_of_an_earlier_version_replay_identically(name: str):
    replay_file(RECORDINGS / f"{name}.jsonl", facts=lambda _: FACTS).check()
