"""The Python API as a program uses it: outputs, streams, approvals, hooks, dependencies."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, get_args

import anyio
import msgspec
import pydantic
import pytest

import mainspring
from mainspring import (
    Agent,
    ApprovalRequest,
    Call,
    Event,
    InvalidInput,
    OutputMissing,
    PartialOutput,
    RunResult,
    Runtime,
    TextDelta,
    arun,
    events,
    open_runtime,
    run,
    tool,
)
from mainspring.core.content import plain_text
from mainspring.events import AgentToolResult, HookRan, KnownPayload, OutputProduced, UserMessage
from mainspring.function_tools.partial_json import read_partial
from mainspring.hooks import HookEvent, HookResult, guardrail, hook
from mainspring.testing import Request, Scripted, ScriptLine, calls, says


@dataclass
class Point:
    x: int
    y: int = 0


class Box(msgspec.Struct):
    size: int


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)


class Options(TypedDict):
    depth: int


@dataclass
class Shop:
    prices: dict[str, int]


def price(item: str, call: Call[Shop]) -> int:
    """Look up a price."""
    return call.deps.prices[item]


@tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncGenerator[Runtime]:
    async with open_runtime(store=str(tmp_path / "log.db")) as runtime:
        yield runtime


def texts(events: Sequence[Event]) -> list[str]:
    results = [item.payload for item in events if isinstance(item.payload, AgentToolResult)]
    return [plain_text(item.content) for item in results]


def test_every_event_has_a_public_name():
    kinds = get_args(KnownPayload)
    assert [kind for kind in kinds if kind.__name__ not in events.__all__] == []


def test_an_old_top_level_name_works_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"mainspring\.Scripted is now mainspring\.testing"):
        assert mainspring.Scripted is Scripted


@pytest.mark.parametrize(
    ("output_type", "given", "output"),
    [
        pytest.param(Point, {"x": 1}, Point(1), id="dataclass"),
        pytest.param(Box, {"size": 2}, Box(2), id="msgspec"),
        pytest.param(Model, {"name": "Ann"}, Model(name="Ann"), id="pydantic"),
        pytest.param(Options, {"depth": 3}, {"depth": 3}, id="TypedDict"),
        pytest.param(list[int], {"result": [1, 2]}, [1, 2], id="list"),
        pytest.param([Point, Box], {"result": {"size": 4}}, Box(4), id="alternatives"),
        pytest.param(Point | None, {"result": None}, None, id="union"),
    ],
)
async def test_an_output_has_the_requested_type(
    output_type: type[object],
    given: dict[str, object],
    output: object,
    runtime: Runtime,
):
    wrong = calls("final_result", nothing=1)
    agent = Agent(output_type=output_type)
    runtime.models.put(agent.model, Scripted(wrong, calls("final_result", **given)))
    session = await runtime.start(agent, "go")
    result = await session.run()
    assert result is not None
    assert result.output == output
    again = await runtime.resume(agent, session.id)  # as after a crash
    assert (await again.last_result()).output == output
    produced = [item for item in await session.events() if isinstance(item.payload, OutputProduced)]
    assert len(produced) == 1
    assert texts(await session.events())[0].startswith("The result is not valid:")


async def test_a_model_without_valid_output_is_retried_and_then_given_up(
    runtime: Runtime,
):
    silent, wrong = Agent(output_type=Point), Agent(output_type=Point, model="scripted:wrong")
    runtime.models.put(silent.model, script := Scripted(otherwise=says("No.")))
    runtime.models.put(wrong.model, bad := Scripted(otherwise=calls("final_result", x="one")))
    for agent, model in ((silent, script), (wrong, bad)):
        session = await runtime.start(agent, "go")
        result = await session.run()
        assert result is not None
        assert (result.reason, result.ok, len(model.requests)) == ("output_invalid", False, 3)
        with pytest.raises(OutputMissing, match="output_invalid"):
            _ = result.output


async def test_a_message_after_an_output_starts_the_next_one(runtime: Runtime):
    agent = Agent(output_type=Point)
    runtime.models.put(
        agent.model, Scripted(calls("final_result", x=1), calls("final_result", x=2))
    )
    session = await runtime.start(agent, "one")
    first = await session.run()
    await session.send("two")
    second = await session.run()
    assert first is not None
    assert second is not None
    assert (first.output, second.output) == (Point(1), Point(2))


async def test_a_stream_yields_deltas_events_the_growing_output_and_the_result(runtime: Runtime):
    agent = Agent(output_type=Point)
    script = Scripted(says("Well.") + calls("final_result", x=12, y=34), chunk_chars=4)
    runtime.models.put(agent.model, script)
    session = await runtime.start(agent)
    seen: list[str] = []
    partial: list[object] = []
    async for event in session.stream("go"):
        match event:
            case TextDelta(text):
                seen.append(text)
            case PartialOutput():
                partial.append(event.value)
            case Event(payload=UserMessage()):
                seen.append("asked")
            case RunResult():
                seen.append(str(event.output))
            case _:
                pass
    assert seen == ["asked", "Well", ".", "Point(x=12, y=34)"]
    assert partial[-1] == {"x": 12, "y": 34}
    assert {"x": 12} in partial


async def test_a_stream_raises_the_error_of_its_run_and_ends_with_its_block(runtime: Runtime):
    agent = Agent(tools=[price])
    caller = Agent(subagents=[replace(agent, name="seller", description="Sells.")])
    for item in (agent, caller):
        session = await runtime.start(item)
        with pytest.raises(InvalidInput, match="needs deps of type Shop"):
            async for _ in session.stream("go"):
                pass
    slow = Agent(name="slow")
    runtime.models.put(slow.model, Scripted(says("a"), says("b"), latency_seconds=30))
    session = await runtime.start(slow)
    async with session.stream("go") as stream:
        async for event in stream:
            if isinstance(event, Event) and event.type == "span.model_request_start":
                break
    runtime.models.put(slow.model, Scripted(says("done")))
    result = await session.run()  # it was only stopped: the lease is free, nothing is lost
    assert result is not None
    assert result.output == "done"


def test_every_prefix_of_a_json_text_can_be_parsed():
    value: dict[str, object] = {
        "a": 'q"\\\u00e9\n',
        "n": [1, -2.5e3, {"t": True, "z": None}],
        "o": {},
    }
    text = msgspec.json.encode(value).decode()
    for end in range(1, len(text)):
        read = read_partial(text[:end])
        assert isinstance(read, dict)
        assert read.keys() <= value.keys()
    assert read_partial(text) == value


async def test_approvals_are_answered_by_a_callback_and_unanswered_ones_wait(runtime: Runtime):
    agent = Agent(tools=[pay])
    asked: list[ApprovalRequest] = []

    def answer(request: ApprovalRequest) -> bool | str | None:
        asked.append(request)
        return {"1": True, "2": "Too much."}.get(str(request.input["euros"]))

    script = Scripted(*(calls("pay", euros=n) for n in (1, 2, 3)), says("done"))
    runtime.models.put(agent.model, script)
    session = await runtime.start(agent, "pay")
    result = await session.run(on_approval=answer)
    assert result is not None
    assert result.reason == "requires_action"
    assert [(item.tool, item.input["euros"]) for item in asked] == [
        ("pay", 1),
        ("pay", 2),
        ("pay", 3),
    ]
    assert texts(await session.events()) == ["paid 1", "Not allowed: Too much.."]
    again = await runtime.resume(agent, session.id)  # a restart without the callback
    assert await again.run() is None
    result = await again.run(on_approval=lambda _: True)
    assert result is not None
    assert result.text == "done"


async def test_a_failing_pre_tool_hook_denies_the_call_and_is_logged(runtime: Runtime):
    @hook("PreToolUse", "double|other")
    def broken(event: HookEvent) -> HookResult | None:
        raise KeyError("lost")

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    agent = Agent(tools=[double], hooks=[broken])
    runtime.models.put(agent.model, Scripted(calls("double", number=2), says("so be it")))
    session = await runtime.start(agent, "go")
    await session.run()
    events = await session.events()
    assert texts(events) == ["Not allowed: broken failed: KeyError: 'lost'."]
    ran = [item.payload for item in events if isinstance(item.payload, HookRan)]
    assert [(item.handler, item.outcome) for item in ran] == [("broken", "failed")]


async def test_hooks_can_change_input_and_guardrails_apply_to_subagents(
    runtime: Runtime,
):
    @hook("PreToolUse", "double")
    async def rounded(event: HookEvent) -> HookResult | None:
        return HookResult(updated_input={"number": 5})

    @guardrail("tool", "double")
    def small(call: Call) -> str | None:
        return "too large" if call.input["number"] == 9 else None

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    helper = Agent(name="helper", description="Doubles.", tools=[double], output_type=Box)
    agent = Agent(tools=[double], hooks=[small, rounded], subagents=[helper])

    def answer(request: Request) -> ScriptLine:
        if any(spec.name == "final_result" for spec in request.tools):
            done = len(request.messages) > 1
            return calls("final_result", size=3) if done else calls("double", number=9)
        return says("done")

    ask = calls("agent", subagent_type="helper", description="d", prompt="9")
    script = Scripted(calls("double", number=1), ask, otherwise=answer)
    runtime.models.put(agent.model, script)
    session = await runtime.start(agent, "go")
    result = await session.run()
    assert result is not None
    assert result.output == "done"
    first, denied, accepted, report = texts(await session.events())
    assert (first, denied, accepted) == ("10", "Not allowed: too large.", "Accepted.")
    assert report.startswith('{"size":3}')


async def test_the_same_key_resumes_the_same_session_and_sends_a_message_once(tmp_path: Path):
    store = str(tmp_path / "log.db")
    for _ in range(2):
        result = await arun(Agent(), "hi", model=Scripted(says("one")), store=store, key="k")
        assert (result.output, result.turns) == ("one", 1)


async def test_the_history_of_one_session_can_start_another(runtime: Runtime):
    agent = Agent()
    runtime.models.put(agent.model, script := Scripted(says("Hi Ann."), says("Ann.")))
    session = await runtime.start(agent, "I am Ann.")
    await session.run()
    more = [{"role": "user", "content": "Hm."}, {"role": "assistant", "content": "Yes?"}]
    other = await runtime.start(agent, "Who am I?", history=[*await session.history(), *more])
    await other.run()
    assert len(script.requests[-1].messages) == 5
    with pytest.raises(InvalidInput, match="ends with an answer"):
        await runtime.start(agent, history=more[:1])


async def test_files_become_message_parts_and_unsupported_ones_are_refused(
    runtime: Runtime, tmp_path: Path
):
    (tmp_path / "note.txt").write_text("hello", encoding="utf-8")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00")
    session = await runtime.start(Agent())
    parts = ["see", tmp_path / "note.txt", tmp_path / "dot.png"]
    item = await session.send(parts)
    assert '"title":"note.txt"' in item.body
    assert '"image/png"' in item.body
    for name, why in (("x.bin", "a PDF or UTF-8 text"), ("none", "cannot be read")):
        with pytest.raises(InvalidInput, match=why):
            await session.send(tmp_path / name)


async def test_run_inside_an_event_loop_says_to_use_arun():
    with pytest.raises(InvalidInput, match=r"await arun\(\.\.\.\)"):
        run(Agent(), "hi")


def test_an_invalid_agent_definition_is_refused_with_a_reason():
    with pytest.raises(InvalidInput, match="needs a description"):
        Agent(subagents=[Agent(name="helper")])
    with pytest.raises(InvalidInput, match="no JSON form"):
        Agent(output_type=anyio.Event)
    with pytest.raises(InvalidInput, match="it needs a docstring"):
        Agent(tools=[test_an_invalid_agent_definition_is_refused_with_a_reason])
    with pytest.raises(InvalidInput, match="describes no agent"):
        Agent.from_folder(Path(__file__).parent)
    assert replace(Agent(tools=[price]), name="b").tools[0].spec.name == "price"
