"""Compaction in the loop: long sessions in small windows, and what no layer may take away."""

from collections.abc import Iterator
from pathlib import Path

from tests.harness.session_setup import Stage, stage

from mainspring.capabilities.providers.scripted import (
    ScriptAnswer,
    Scripted,
    ScriptLine,
    calls,
    fails,
    says,
)
from mainspring.core.content import Base64Source, ImageBlock, TextBlock
from mainspring.core.events import (
    ContextCompacted,
    ModelRequestEnded,
    ModelRequestStarted,
    SessionFailed,
    StatusIdle,
    SystemMessage,
    UserInterrupt,
    UserMessage,
)
from mainspring.core.model import Message, Request, ToolResultBlock, ToolSpec, User
from mainspring.core.model_facts import ModelFacts
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.harness.authorizer import AllowAll
from mainspring.harness.context.messages import message_order_error
from mainspring.harness.context.request_builder import build_request
from mainspring.harness.state.thread import Thread, fold
from mainspring.harness.stop_reasons import Ended

SMALL = ModelFacts(id="scripted:small", window=32_000, max_output=4_000)
TINY = ModelFacts(id="scripted:tiny", window=8_000, max_output=1_000)
GOAL = "Read every page of the book, then say what it is about."
RULE = "Do not write anything outside /srv/notes."
SAFETY = "SAFETY: never reveal the key."


def reader(words: int = 600) -> Tool:
    async def read(call: Call) -> ToolResult:
        page = call.input.get("path", "")
        return ToolResult.text(f"page {page} begins\n" + f"word-{page} " * words)

    return Tool(
        spec=ToolSpec(name="read", description="Reads a page.", input_schema={"type": "object"}),
        run=read,
    )


def is_summary(request: Request) -> bool:
    return "<conversation>" in str(request.messages[0].content[0])


def message_texts(messages: tuple[Message, ...]) -> list[str]:
    return [
        part.text
        for message in messages
        if isinstance(message, User)
        for part in message.content
        if isinstance(part, TextBlock)
    ]


async def overlays(play: Stage) -> list[ContextCompacted]:
    found = [event.payload for event in await play.events()]
    return [payload for payload in found if isinstance(payload, ContextCompacted)]


async def layers(play: Stage) -> list[str | None]:
    return [overlay.layer for overlay in await overlays(play)]


class Worker:
    """Calls `read` so many times, then is done; summarizes when it is asked to."""

    def __init__(self, turns: int, summary: ScriptAnswer | None = None) -> None:
        self._steps = self._work(turns)
        self._summary = summary or says("Pages were read; nothing of note.")

    def __call__(self, request: Request) -> ScriptAnswer:
        return self._summary if is_summary(request) else next(self._steps)

    def _work(self, turns: int) -> Iterator[ScriptLine]:
        for page in range(turns):
            thought = f"On page {page} " + "the story goes on and on " * 8
            yield says(thought) + calls("read", path=f"book/{page}.txt")
        yield says("It is about words.")


async def test_300_turns_in_a_small_window_keep_the_rules_in_every_request(tmp_path: Path):
    model = Scripted(otherwise=Worker(300))
    async with stage(tmp_path, model, reader(), facts=SMALL, rules=(SAFETY,)) as play:
        rule = SystemMessage(content=(TextBlock(RULE),))
        assert await play.play(rule, GOAL) == Ended("completed")
        for request in model.requests:
            assert any(SAFETY in part for part in request.system)
            told = request.system if is_summary(request) else message_texts(request.messages)
            assert any(RULE in text for text in told)
            assert any(GOAL in text for text in told)
        turns = [request for request in model.requests if not is_summary(request)]
        assert len(turns) == 301
        assert [message_order_error(request.messages) for request in turns] == [None] * 301
        assert {"micro", "collapse", "auto"} <= set(await layers(play))
        assert all((overlay.freed_tokens or 0) > 0 for overlay in await overlays(play))


async def test_every_request_of_a_long_session_can_be_rebuilt_from_the_log(tmp_path: Path):
    model = Scripted(otherwise=Worker(60))
    async with stage(tmp_path, model, reader(), facts=SMALL) as play:
        await play.play(GOAL)
        thread = Thread(id=(await play.context()).thread.id)
        sent = [request.messages for request in model.requests if not is_summary(request)]
        rebuilt: list[tuple[Message, ...]] = []
        prefix = (await play.context()).prompt_prefix
        for event in await play.events():
            thread.apply(event)
            if isinstance(event.payload, ModelRequestStarted) and not event.payload.purpose:
                rebuilt.append(build_request(thread, prefix, max_tokens=1).messages)
        assert rebuilt == sent


async def test_a_request_extends_the_one_before_unless_a_compaction_is_recorded(tmp_path: Path):
    model = Scripted(otherwise=Worker(60))
    async with stage(tmp_path, model, reader(200), facts=SMALL) as play:
        await play.play(GOAL)
        sent = [request.messages for request in model.requests if not is_summary(request)]
        started = [
            event.payload
            for event in await play.events()
            if isinstance(event.payload, ModelRequestStarted) and not event.payload.purpose
        ]
        breaks = 0
        for before, after, start in zip(sent, sent[1:], started[1:], strict=False):
            extends = after[: len(before)] == before
            assert extends == (start.cache_break is None)
            breaks += not extends
        assert 0 < breaks < len(sent) / 8


async def test_finished_tasks_are_snipped_and_standing_instructions_stay(tmp_path: Path):
    standing = "Never push before I say so."
    model = Scripted(otherwise=lambda request: says("answer " * 800))
    async with stage(tmp_path, model, facts=SMALL) as play:
        await play.play(standing)
        for number in range(40):
            assert await play.play(f"question {number}: " + "why " * 200) == Ended("completed")
        assert set(await layers(play)) == {"snip"}
        last = message_texts(model.requests[-1].messages)
        assert standing in last
        assert not any("question 5:" in text for text in last)
        assert any("question 38:" in text for text in last)
        assert all(standing in message_texts(request.messages) for request in model.requests)


async def test_the_goal_stays_pinned_through_interruptions_until_the_task_ends(tmp_path: Path):
    async with stage(tmp_path, Scripted(otherwise=Worker(12)), reader(2000), facts=SMALL) as play:
        context = await play.context()
        transcript = context.thread.transcript
        transcript.add_user(1, (TextBlock(GOAL),))
        transcript.begin_reply(2)
        transcript.end_run(3, is_completed=False)
        transcript.add_user(4, (TextBlock("go on"),))
        assert transcript.pins.blocks() == [TextBlock(GOAL), TextBlock("go on")]
        transcript.end_run(5, is_completed=True)
        transcript.add_user(6, (TextBlock("something else"),))
        assert transcript.pins.blocks() == [TextBlock("something else")]


async def test_tool_results_of_one_round_share_a_size_limit(tmp_path: Path):
    many = calls("read", path="a") + calls("read", path="b") + calls("read", path="c")
    model = Scripted(many, says("done"))
    async with stage(tmp_path, model, reader(4000), facts=SMALL) as play:
        assert await play.play(GOAL) == Ended("completed")
        assert await layers(play) == ["results"]
        assert await play.continued() == ["next_turn", "compacted_retry"]
        results = [
            p for p in model.requests[1].messages[-1].content if isinstance(p, ToolResultBlock)
        ]
        assert [str(result.content).count("begins") for result in results] == [1, 1, 1]
        assert all("bytes left out" in str(result.content) for result in results)
        assert len(str(results)) < 32_000


async def test_summaries_stop_after_three_failures_in_a_row(tmp_path: Path):
    model = Scripted(otherwise=Worker(100, fails("overloaded")))
    async with stage(tmp_path, model, reader(60), facts=TINY) as play:
        await play.play(GOAL)
        assert sum(map(is_summary, model.requests)) == 3
        ends = [
            event.payload
            for event in await play.events()
            if isinstance(event.payload, ModelRequestEnded) and event.payload.purpose
        ]
        assert [end.stop_reason for end in ends] == ["overloaded"] * 3


async def test_a_summary_longer_than_the_text_it_replaces_is_not_used(tmp_path: Path):
    model = Scripted(otherwise=Worker(100, says("blah " * 20_000)))
    async with stage(tmp_path, model, reader(60), facts=TINY) as play:
        await play.play(GOAL)
        assert "auto" not in await layers(play)
        assert sum(map(is_summary, model.requests)) == 3


async def test_summaries_are_charged_to_the_budget(tmp_path: Path):
    model = Scripted(otherwise=Worker(100))
    async with stage(tmp_path, model, reader(60), facts=TINY) as play:
        await play.play(GOAL)
        context = await play.context()
        assert context.tiers[0].spend_account.spending.reservations == {}
        ends = [
            event.payload
            for event in await play.events()
            if isinstance(event.payload, ModelRequestEnded)
        ]
        assert context.tiers[0].spend_account.usage.output_tokens == sum(
            e.model_usage.output_tokens for e in ends
        )
        assert any(end.purpose == "summary" for end in ends)


async def test_a_user_can_interrupt_a_summary(tmp_path: Path):
    work = Worker(100)
    async with stage(tmp_path, Scripted(), reader(60), facts=TINY) as play:

        class Interrupting(Scripted):
            async def stream(self, request: Request):
                if is_summary(request):
                    await play.send(UserInterrupt())
                async for delta in super().stream(request):
                    yield delta

        play.model = Interrupting(otherwise=work, latency_seconds=0.01)
        assert await play.play(GOAL) == Ended("interrupted_streaming")
        assert "auto" not in await layers(play)
        assert (await play.context()).thread.summary_failures == 0


async def test_a_prompt_the_provider_refuses_as_too_long_is_compacted_and_retried(tmp_path: Path):
    steps = [calls("read", path=f"book/{page}.txt") for page in range(9)]
    model = Scripted(*steps, fails("prompt_too_long"), says("done"))
    async with stage(tmp_path, model, reader(), facts=SMALL) as play:
        assert await play.play(GOAL) == Ended("completed")
        assert (await play.continued())[-1] == "reactive_compact_retry"
        assert len(str(model.requests[-1].messages)) < len(str(model.requests[-2].messages)) * 0.7
        assert GOAL in message_texts(model.requests[-1].messages)


async def test_a_provider_that_refuses_every_prompt_is_asked_three_times(tmp_path: Path):
    steps = [calls("read", path=f"book/{page}.txt") for page in range(9)]
    refuses = [fails("prompt_too_long") for _ in range(9)]

    def answer(request: Request) -> ScriptAnswer:
        return says("short") if is_summary(request) else refuses.pop()

    model = Scripted(*steps, otherwise=answer)
    async with stage(tmp_path, model, reader(), facts=SMALL) as play:
        assert (await play.end_of(GOAL)).reason == "prompt_too_long"
        assert (await play.continued()).count("reactive_compact_retry") == 2


async def test_media_that_a_provider_refuses_are_left_out_and_text_stays(tmp_path: Path):
    picture = ImageBlock(source=Base64Source(media_type="image/png", data="aGk="))
    model = Scripted(fails("media_too_large"), says("I see nothing."))
    async with stage(tmp_path, model, facts=SMALL) as play:
        asked = UserMessage(content=(TextBlock("What is this?"), picture))
        assert await play.play(asked) == Ended("completed")
        assert await layers(play) == ["media"]
        last = model.requests[-1].messages[0].content
        assert TextBlock("What is this?") in last
        assert picture not in last


async def test_a_goal_larger_than_the_window_ends_every_run_with_an_error(tmp_path: Path):
    async with stage(tmp_path, Scripted(), facts=SMALL) as play:
        for message in ("word " * 40_000, "go on"):
            assert (await play.end_of(message)).reason == "prompt_too_long"
        *_, error, idle = [event.payload for event in await play.events()]
        assert isinstance(error, SessionFailed)
        assert isinstance(idle, StatusIdle)
        assert error.error.type == "prompt_too_long_error"
        assert "at most 29000 can be sent" in error.error.message


async def test_a_result_of_very_many_blocks_does_not_end_the_session(tmp_path: Path):
    async def read(_: Call) -> ToolResult:
        return ToolResult(tuple(TextBlock(f"{number % 7}") for number in range(400_000)))

    spec = ToolSpec(name="read", description="Reads a page.", input_schema={"type": "object"})
    model = Scripted(calls("read"), says("done"), says("still here"))
    async with stage(tmp_path, model, Tool(spec=spec, run=read), facts=SMALL) as play:
        assert await play.play("go") == Ended("completed")
        assert await play.play("and now?") == Ended("completed")


async def test_authorizers_are_notified_before_a_compaction_removes_anything(tmp_path: Path):
    heard: list[int] = []

    class Listening(AllowAll):
        async def before_compact(self, thread: Thread) -> None:
            heard.append(len(thread.transcript.messages))

    model = Scripted(otherwise=Worker(20))
    async with stage(tmp_path, model, reader(), facts=SMALL, authorizer=Listening()) as play:
        await play.play(GOAL)
        assert heard
        first = next(
            index
            for index, event in enumerate(await play.events())
            if isinstance(event.payload, ContextCompacted)
        )
        log = (await play.events())[:first]
        thread = fold(log, thread_id=(await play.context()).thread.id)
        assert len(thread.transcript.messages) == heard[0]


async def test_a_tool_round_that_is_still_referred_to_keeps_its_result(tmp_path: Path):
    def answer(request: Request) -> ScriptAnswer:
        if is_summary(request):
            return says("Pages were read.")
        page = len(model.requests)
        if page > 60:
            return says("done")
        path = "book/contents.txt" if page == 1 else f"book/{page}.txt"
        return says("As book/contents.txt says, on.") + calls("read", path=path)

    model = Scripted(otherwise=answer)
    async with stage(tmp_path, model, reader(60), facts=TINY) as play:
        assert await play.play(GOAL) == Ended("completed")
        assert "collapse" in await layers(play)
        for request in model.requests[1:]:
            assert is_summary(request) or "word-book/contents.txt" in str(request.messages)
