"""The prompt cache: requests extend each other, byte for byte, or the log says why they do not."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from tests.harness.session_setup import Stage, echo, stage

from mainspring.capabilities.providers.anthropic.request import encode
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.capabilities.providers.scripted import (
    Scripted,
    SimulatedPromptCache,
    calls,
    fails,
    says,
)
from mainspring.core.events import ModelRequestStarted, Usage, UserToolConfirmation
from mainspring.core.model import Request, ToolSpec
from mainspring.core.model_facts import ModelFacts
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.limits import Limits
from mainspring.harness.stop_reasons import Ended

MARKER = b',"cache_control":{"type":"ephemeral"}'
RULES = tuple(
    f"Rule {number}: before you change a file, read it and those that use it; change what was"
    f" asked for and nothing else; run the tests of part {number} and quote what they print."
    for number in range(80)
)
TOOLS = ("bash", "edit", "fetch", "glob", "grep", "read", "search", "todo", "write")
TURNS = 15


def tool(name: str) -> Tool:
    """With a description and results of the sizes that real ones have."""

    async def run(call: Call) -> ToolResult:
        path = call.input.get("path")
        return ToolResult.text("\n".join(f"{path}:{line}: return total" for line in range(22)))

    parameters = ("path", "pattern", "limit", "offset", "mode")
    properties: dict[str, object] = {
        field: {"type": "string", "description": f"What {name} takes as its {field}, if anything."}
        for field in parameters
    }
    spec = ToolSpec(
        name=name,
        description=f"The tool {name}. " + "Use it for what its name says, not for others. " * 8,
        input_schema={"type": "object", "properties": properties, "required": ["path"]},
    )
    return Tool(spec=spec, run=run, traits=lambda _: Traits(read_only=True, concurrent=True))


def work(turns: int, start: int = 0) -> Scripted:
    steps = [
        says(f"Now file {number}.") + calls(TOOLS[number % 9], path=f"src/module_{number}.py")
        for number in range(start, start + turns - 1)
    ]
    return Scripted(*steps, otherwise=says("All files were read."))


def neutral(request: Request) -> bytes:
    """Up to the end of the last block: a message may still get more blocks before it is sent."""
    return msgspec.json.encode((request.tools, request.system, request.messages))[:-4]


def anthropic(request: Request) -> bytes:
    whole = encode(request, Quirks()).replace(MARKER, b"")
    return whole[: whole.rindex(b'],"max_tokens"')][:-2]


def is_extended(before: Request, after: Request) -> bool:
    """Both encodings must say the same."""
    extends = neutral(after).startswith(neutral(before))
    assert extends == anthropic(after).startswith(anthropic(before))
    return extends


def usages(requests: Sequence[Request]) -> list[Usage]:
    """What a provider would count for these calls, from the first on."""
    cache = SimulatedPromptCache()
    return [cache.usage(request, output_tokens=0) for request in requests]


def prompt(usage: Usage) -> int:
    written, read = usage.cache_creation_input_tokens, usage.cache_read_input_tokens
    return usage.input_tokens + written + read


def billed_tokens(usage: Usage) -> float:
    """In input tokens at full price."""
    written, read = usage.cache_creation_input_tokens, usage.cache_read_input_tokens
    return usage.input_tokens + 1.25 * written + 0.1 * read


async def breaks(play: Stage) -> list[str | None]:
    """Of each request, why it does not extend the one before it."""
    return [
        event.payload.cache_break
        for event in await play.events()
        if isinstance(event.payload, ModelRequestStarted) and event.payload.purpose is None
    ]


async def test_requests_of_fifteen_turns_extend_each_other_and_hit_the_cache(tmp_path: Path):
    model = work(TURNS)
    async with stage(tmp_path, model, *map(tool, TOOLS), rules=RULES) as play:
        assert await play.play("Read all modules and say what is wrong.") == Ended("completed")
        requests = model.requests
        assert len(requests) == TURNS
        assert all(map(is_extended, requests, requests[1:]))
        assert await breaks(play) == [None] * TURNS
        counted = usages(requests)
        assert 3_000 < prompt(counted[0]) < 12_000
        later = counted[1:]
        assert all(usage.input_tokens == 0 for usage in counted), "all of it is cached"
        new = [usage.cache_creation_input_tokens for usage in later]
        assert all(100 < tokens < 1_000 for tokens in new)
        read = sum(usage.cache_read_input_tokens for usage in later)
        whole = sum(map(prompt, later))
        assert read / whole >= 0.96
        assert sum(map(billed_tokens, later)) <= 0.15 * whole
        assert sum(map(billed_tokens, counted)) <= 0.25 * sum(map(prompt, counted))


async def test_a_worker_that_takes_over_sends_the_same_bytes_as_the_one_before(tmp_path: Path):
    model = work(12)
    async with stage(tmp_path, model, *map(tool, TOOLS), rules=RULES) as play:
        for number in range(4):
            await play.play(f"Part {number}, please.")  # a new desk each time, from the log alone
        requests = model.requests
        assert all(map(is_extended, requests, requests[1:]))
        assert await breaks(play) == [None] * len(requests)


class OftenAskingAuthorizer(AllowAll):
    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        decision = "ask" if call.input.get("x") == "ask" else "allow"
        return Decision(decision=decision, gate="rule")


async def test_approvals_failures_truncations_and_budgets_do_not_break_the_cache(tmp_path: Path):
    model = Scripted(
        calls("echo", x="1") + calls("echo", x="ask"),
        says("It goes on", reason="max_tokens"),
        says("It goes on", reason="max_tokens"),
        calls("echo", x="2") + calls("nothing"),
        fails("overloaded"),
        calls("echo", x="3"),
        fails("stalled"),
        calls("echo", x="4"),
        otherwise=says("Done."),
    )
    limits = Limits(max_turns=40, max_tool_calls=50)
    async with stage(
        tmp_path, model, echo(), authorizer=OftenAskingAuthorizer(), limits=limits
    ) as play:
        waiting = await play.play("Begin.")
        assert waiting is not None
        [call_id] = waiting.waiting_for
        await play.play(UserToolConfirmation(tool_use_id=call_id, result="allow"), "And quickly.")
        await play.play("Try again.")
        assert await play.play("Anything else?") == Ended("completed")
        assert model.steps_left == 0
        assert len(model.requests) >= 10
        assert all(map(is_extended, model.requests, model.requests[1:]))
        assert set(await breaks(play)) == {None}


async def test_every_cache_break_is_logged_with_its_reason(tmp_path: Path):
    model = Scripted(otherwise=says("Yes."))
    async with stage(tmp_path, model, tool("read"), rules=RULES) as play:
        await play.play("one")
        await play.play("two")
        play.tools = {"read": tool("read"), "write": tool("write")}
        await play.play("three")
        await play.play("four")
        play.rules = (*RULES, "And be kind.")
        await play.play("five")
        play.facts = ModelFacts(id="scripted:other", window=200_000, max_output=64_000)
        await play.play("six")
        await play.play("seven")
        changed = "system or tools changed"
        why = await breaks(play)
        assert why == [None, None, changed, None, changed, "model changed", None]
        found = [usage.cache_read_input_tokens for usage in usages(model.requests)]
        assert [len(request.messages) for request in model.requests] == [1, 3, 5, 7, 9, 11, 13]
        tools_only = usages(model.requests[:1])[0]
        for reason, read, before in zip(why[1:], found[1:], usages(model.requests), strict=False):
            if reason is None:
                assert read == prompt(before), "all that was sent before"
            else:
                assert read < prompt(tools_only)


async def test_only_a_compaction_makes_a_request_not_extend_the_previous_one(tmp_path: Path):
    window = ModelFacts(id="scripted:small", window=24_000, max_output=4_000)
    model = work(60)
    async with stage(tmp_path, model, *map(tool, TOOLS), rules=RULES[:20], facts=window) as play:
        assert await play.play("Read all modules.") == Ended("completed")
        turns = [request for request in model.requests if request.tools]
        assert len(turns) == len(await breaks(play))
        why = (await breaks(play))[1:]
        extends = list(map(is_extended, turns, turns[1:]))
        assert set(why) == {None, "compaction"}
        assert [reason is None for reason in why] == extends
        assert extends.count(False) < len(turns) / 8
        found = [usage.cache_read_input_tokens for usage in usages(turns)]
        before = usages(turns)
        for reason, read, last in zip(why, found[1:], before, strict=False):
            assert (read == prompt(last)) == (reason is None)
