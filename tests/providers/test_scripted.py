import pytest
from tests.providers.wire import asks, collect, told

from mainspring.capabilities.providers.scripted import (
    ReplayModel,
    Scripted,
    SimulatedPromptCache,
    calls,
    fails,
    request_fingerprint,
    says,
    thinks,
)
from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed
from mainspring.core.events import Usage
from mainspring.core.model import (
    Assistant,
    Message,
    Reply,
    Request,
    TextDelta,
    Thinking,
    ToolResultBlock,
    ToolUse,
    ToolUseReady,
    User,
)


def words(reply: Reply) -> str:
    return "".join(block.text for block in reply.content if isinstance(block, TextBlock))


async def test_a_script_gives_its_lines_in_order_and_is_then_exhausted():
    model = Scripted(says("one"), says("two"))
    assert [words((await collect(model))[1]) for _ in range(2)] == ["one", "two"]
    with pytest.raises(ProviderFailed, match="no answer to request 3") as failed:
        await collect(model)
    assert failed.value.kind == "exhausted"
    assert len(model.requests) == 3


async def test_combined_lines_are_one_reply_streamed_in_deltas():
    line = thinks("Hm.") + says("Looking.") + calls("bash", command="ls") + calls("now")
    deltas, reply = await collect(Scripted(line, chunk_chars=3))
    [first, second] = [block for block in reply.content if isinstance(block, ToolUse)]
    assert reply.content == (Thinking(text="Hm."), TextBlock("Looking."), first, second)
    assert (first.name, first.input, second.input) == ("bash", {"command": "ls"}, {})
    assert first.id != second.id
    assert reply.reason == "tool_use"
    assert told(deltas) == {
        "thinking": "Hm.",
        "text": "Looking.",
        first.id: '{"command":"ls"}',
        second.id: "{}",
    }
    assert [delta.use for delta in deltas if isinstance(delta, ToolUseReady)] == [first, second]
    assert deltas[1:4] == [TextDelta("Loo"), TextDelta("kin"), TextDelta("g.")]


async def test_a_rule_answers_every_further_request():
    def rule(request: Request):
        return says(str(len(request.messages)))

    model = Scripted(says("first"), otherwise=rule)
    assert [words((await collect(model))[1]) for _ in range(3)] == ["first", "1", "1"]


async def test_ids_of_calls_do_not_repeat_in_a_conversation():
    model = Scripted(otherwise=calls("bash"))
    messages: list[Message] = [User((TextBlock("go"),))]
    for _ in range(5):
        _, reply = await collect(model, asks(*messages))
        [use] = [block for block in reply.content if isinstance(block, ToolUse)]
        result = ToolResultBlock(tool_use_id=use.id, content=())
        messages += [Assistant(reply.content), User((result,))]
    assert len(set([m.content[0].id for m in messages if isinstance(m.content[0], ToolUse)])) == 5


async def test_a_failure_comes_after_the_text_before_it():
    step = fails("overloaded", "busy", after=says("well"), retry_after_seconds=3)
    heard: list[object] = []

    async def listen() -> None:
        async for part in Scripted(step).stream(asks()):
            heard.append(part)

    with pytest.raises(ProviderFailed, match="busy") as failed:
        await listen()
    assert (failed.value.kind, failed.value.retry_after_seconds) == ("overloaded", 3)
    assert heard == [TextDelta("well")]


async def test_a_reply_is_returned_unchanged_and_without_deltas_if_not_streamed():
    reply = Reply(content=(TextBlock("x"),), usage=Usage(), reason="pause_turn", model="other")
    assert await collect(Scripted(reply), asks(stream=False)) == ([], reply)


def conversation(turns: int) -> tuple[Message, ...]:
    """Each is the beginning of every longer one."""
    pairs = [
        (User((TextBlock(f"question {n} " * 20),)), Assistant((TextBlock(f"answer {n} " * 20),)))
        for n in range(turns + 1)
    ]
    return tuple(message for pair in pairs for message in pair)[:-1]


async def test_each_request_reads_the_previous_one_from_the_simulated_cache():
    model = Scripted(otherwise=says("ok"))
    held = 0
    for turns in range(15):
        messages = conversation(turns)
        request = asks(*messages, cache_messages=(len(messages) - 1,))
        usage = (await collect(model, request))[1].usage
        assert usage.cache_read_input_tokens == held
        assert usage.input_tokens == 0, "a breakpoint at the very end leaves nothing uncached"
        held += usage.cache_creation_input_tokens
    assert held > 2000


def test_a_changed_prefix_misses_the_simulated_cache():
    cache = SimulatedPromptCache()
    request = asks(*conversation(3), cache_messages=(6,))
    first = cache.usage(request, output_tokens=1)
    again = cache.usage(request, output_tokens=1)
    assert first.cache_read_input_tokens == 0
    assert again.cache_read_input_tokens == first.cache_creation_input_tokens
    assert (again.cache_creation_input_tokens, again.input_tokens) == (0, 0)
    changed = cache.usage(asks(*conversation(3), tools=(), cache_messages=(6,)), output_tokens=1)
    assert changed.cache_read_input_tokens == 0
    short = SimulatedPromptCache(min_tokens=100_000).usage(request, output_tokens=1)
    assert (short.cache_creation_input_tokens, short.cache_read_input_tokens) == (0, 0)


async def test_a_replay_gives_the_recorded_replies_to_the_recorded_requests():
    live = Scripted(says("one"), says("two") + calls("bash"))
    requests = [asks(request_id="a"), asks(*conversation(1), request_id="b")]
    recorded = [(request_fingerprint(item), (await collect(live, item))[1]) for item in requests]
    replay = ReplayModel(recorded)
    for request, (_, reply) in zip(requests, recorded, strict=True):
        resent = asks(*request.messages, request_id="other", cache_messages=(0,))
        assert (await collect(replay, resent))[1] == reply
    assert replay.replies_left == 0
    with pytest.raises(ProviderFailed, match="request 3 was never made") as failed:
        await collect(replay, requests[0])
    assert failed.value.kind == "exhausted"


async def test_a_replay_stops_at_the_first_difference_and_stays_stopped():
    reply = Reply(content=(TextBlock("x"),), usage=Usage(), reason="end_turn", model="m")
    replay = ReplayModel([(request_fingerprint(asks()), reply)])
    for request in (asks(system=("other",)), asks()):
        with pytest.raises(ProviderFailed, match="request 1 is not the recorded one"):
            await collect(replay, request)


async def test_a_replay_continues_live_from_the_first_difference():
    reply = Reply(content=(TextBlock("old"),), usage=Usage(), reason="end_turn", model="m")
    live = Scripted(says("new"), says("newer"))

    def same_model(recorded: str, request: Request) -> str | None:
        return None if recorded == request.model else f"model {request.model}"

    replay = ReplayModel([("m-1", reply), ("m-1", reply)], compare=same_model, live=live)
    requests = [asks(), asks(model="m-2"), asks()]
    said = [words((await collect(replay, request))[1]) for request in requests]
    assert said == ["old", "new", "newer"]
    assert replay.diverged == "request 2 is not the recorded one: model m-2"
