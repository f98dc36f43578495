"""Tools around tools: each wrapper changes one thing and leaves the rest."""

from collections.abc import Mapping
from dataclasses import replace

import anyio

from mainspring.core.content import (
    plain_text,
)
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.function_tools.wrap import (
    filtered,
    renamed,
    with_approval,
    with_timeout,
)

CALL = Call(
    id="call_1",
    name="echo",
    input={"text": "hi"},
    idempotency_key="key_1",
    session_id="sesn_1",
    thread_id="sthr_1",
)


@tool(read_only=True)
async def echo(text: str, call: Call) -> str:
    """Say it again."""
    return f"{call.name}: {text}"


async def test_a_call_within_its_time_limit_is_unchanged():
    assert await with_timeout(echo, 5).run(CALL) == ToolResult.text("echo: hi")


async def test_a_call_over_its_time_limit_fails_with_a_message():
    async def run(call: Call) -> ToolResult:
        await anyio.sleep_forever()
        return ToolResult.text("never")

    with anyio.fail_after(60):
        outcome = await with_timeout(replace(echo, run=run), 0.01).run(CALL)
    assert not outcome.ok
    assert plain_text(outcome.content).startswith("echo was stopped: it took longer than 0.01 s")


async def test_a_renamed_tool_gets_its_calls_under_its_own_name():
    seen: list[str] = []

    async def probe(call: Call) -> ToolResult | None:
        seen.append(call.name)
        return None

    other = renamed(replace(echo, probe=probe), "say")
    assert (other.spec.name, other.spec.description) == ("say", echo.spec.description)
    assert await other.run(replace(CALL, name="say")) == ToolResult.text("echo: hi")
    assert other.probe is not None
    await other.probe(replace(CALL, name="say"))
    assert seen == ["echo"]
    assert renamed(echo, "say").probe is None


async def test_a_rejected_input_is_reported_and_not_run():
    def polite(given: Mapping[str, object]) -> str | None:
        return "no shouting" if str(given["text"]).isupper() else None

    quiet = filtered(echo, polite)
    assert await quiet.run(CALL) == ToolResult.text("echo: hi")
    assert quiet.invalid({"text": "HI"}) == "no shouting"
    assert await quiet.run(replace(CALL, input={"text": "HI"})) == ToolResult.text(
        "no shouting", ok=False
    )
    assert quiet.invalid({}) == echo.invalid({})


def test_wrappers_keep_everything_they_do_not_change():
    wrapped = with_timeout(renamed(filtered(echo, lambda _: None), "say"), 1)
    assert wrapped.traits({}) == echo.traits({})
    assert wrapped.function is echo.function


def test_approval_is_required_only_where_the_condition_holds():
    made = _read_only_tool()
    asked = with_approval(made, lambda given: given.get("to") == "all")
    assert asked.traits({"to": "all"}) == replace(made.traits({}), needs_person=True)
    assert asked.traits({"to": "me"}) == made.traits({})
    assert with_approval(with_approval(made), lambda _: False).traits({}).needs_person


def _read_only_tool() -> Tool:
    @tool(read_only=True, concurrent=True)
    def look(to: str) -> str:
        """Look."""
        return to

    return look
