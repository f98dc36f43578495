"""Subagents through the public Python API: called, waited for, messaged, stopped."""

from dataclasses import replace
from pathlib import Path

import anyio
from tests.runtime.subagents.scripted_threads import (
    LEAD,
    ask,
    births,
    kinds_of,
    newest,
    once,
    played,
    reply,
    staged,
    task_of,
    troupe,
    turn_of,
)

from mainspring import Agent, Limits, tool
from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted
from mainspring.core.content import plain_text
from mainspring.core.events import AgentToolResult, StatusIdle, ThreadMessageReceived
from mainspring.core.model import Request
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.runtime.subagent import Subagent
from mainspring.testing import calls, says


async def test_a_subagent_works_on_its_own_thread_and_its_last_message_is_the_result(
    tmp_path: Path,
):
    model = troupe({"begin": once(ask("look")), "task look": reply("it is in a.py")})
    result, events = await played(tmp_path, model)
    assert result.ok
    assert "it is in a.py" in result.text
    [birth] = births(events)
    assert (birth.agent_name, birth.mode) == ("general", "foreground")
    own = kinds_of(events, birth.session_thread_id)
    assert (own[0], own[-1]) == ("agent.thread_message_received", "session.status_idle")
    main = next(event.thread_id for event in events)
    assert kinds_of(events, main).count("session.status_idle") == 1


async def test_subagents_of_one_turn_run_concurrently(tmp_path: Path):
    together = anyio.Event()
    waiting: list[str] = []

    class Meeting(Scripted):
        async def stream(self, request: Request):
            if "task" in task_of(request):
                waiting.append(task_of(request))
                if len(waiting) == 3:
                    together.set()
                with anyio.fail_after(60):
                    await together.wait()
            async for delta in super().stream(request):
                yield delta

    def answer(request: Request) -> ScriptAnswer:
        if "task" in task_of(request):
            return says(f"done {task_of(request)}")
        return once(ask("1") + ask("2") + ask("3"))(request)

    result, _ = await played(tmp_path, Meeting(otherwise=answer))
    assert [f"done task {number}" in result.text for number in (1, 2, 3)] == [True] * 3


async def test_the_agent_tool_is_hidden_at_the_maximum_depth(tmp_path: Path):
    model = troupe(
        {
            "begin": once(ask("outer")),
            "task outer": once(ask("inner")),
            "task inner": reply("deep enough"),
        }
    )
    await played(tmp_path, model)
    shown = {task_of(r): [s.name for s in r.tools if s.name == "agent"] for r in model.requests}
    assert shown == {"begin": ["agent"], "task outer": ["agent"], "task inner": []}


async def test_a_background_subagent_reports_by_message_and_wakes_its_caller(tmp_path: Path):
    def lead(request: Request) -> ScriptAnswer:
        if turn_of(request) == 0:
            return ask("slow", run_in_background=True)
        if turn_of(request) == 1:
            return says("I wait.")
        return says(f"heard: {newest(request)}")

    model = troupe({"begin": lead, "task slow": reply("the slow answer")})
    result, events = await played(tmp_path, model)
    assert "the slow answer" in result.text
    received = [
        event.payload
        for event in events
        if isinstance(event.payload, ThreadMessageReceived) and event.payload.sent_id
    ]
    assert len(received) == 1


async def test_a_session_is_not_idle_while_a_background_subagent_runs(tmp_path: Path):
    def lead(request: Request) -> ScriptAnswer:
        if turn_of(request) == 0:
            return ask("slow", run_in_background=True)
        return says("I wait." if turn_of(request) == 1 else "I have heard.")

    model = troupe({"begin": lead, "task slow": reply("the slow answer")})
    _, events = await played(tmp_path, model)
    main = events[0].thread_id
    assert kinds_of(events, main).count("session.status_idle") == 1
    assert kinds_of(events, main).count("session.status_running") == 1


async def test_a_message_wakes_an_ended_subagent_with_its_conversation(tmp_path: Path):
    def lead(request: Request) -> ScriptAnswer:
        match turn_of(request):
            case 0:
                return ask("count")
            case 1:
                return calls("send_message", to="general", message="once more")
            case 2:
                return says("I wait.")
            case _:
                return says(f"heard: {newest(request)}")

    def counter(request: Request) -> ScriptAnswer:
        return says(f"{turn_of(request) + 1} after {newest(request)}")

    result, _ = await played(tmp_path, troupe({"begin": lead, "task count": counter}))
    assert "2 after once more" in result.text


async def test_a_message_to_an_unknown_subagent_is_reported(tmp_path: Path):
    model = troupe({"begin": once(calls("send_message", to="sthr_x", message="hello?"))})
    result, _ = await played(tmp_path, model)
    assert "'sthr_x' is not a subagent that you have called" in result.text


async def test_a_fork_starts_with_the_same_bytes_as_its_caller(tmp_path: Path):
    def lead(request: Request) -> ScriptAnswer:
        if "part" in newest(request) and turn_of(request) == 1:
            return says(f"forked {newest(request).splitlines()[-1]}")
        if turn_of(request) == 0:
            return ask("part a", subagent_type="fork") + ask("part b", subagent_type="fork")
        return says("joined")

    async with staged(tmp_path, troupe({"begin": lead})) as runtime:
        model = runtime.models.open(LEAD.model)
        assert isinstance(model, Scripted)
        session = await runtime.start(LEAD, "begin")
        await session.run()
    first, one, other, _ = model.requests
    assert (one.system, one.tools) == (first.system, first.tools) == (other.system, other.tools)
    assert one.messages[:-1] == other.messages[:-1]
    assert one.messages[-1].content[:-1] == other.messages[-1].content[:-1]
    assert one.messages[: len(first.messages)] == first.messages


async def test_the_turn_limit_of_a_subagent_applies(tmp_path: Path):
    short = Subagent(name="short", description="", prompt="", max_turns=1)
    lead = replace(LEAD, subagents=(short,))
    model = troupe(
        {"begin": once(ask("go", subagent_type="short")), "task go": lambda _: calls("nothing")}
    )
    result, _ = await played(tmp_path, model, lead)
    assert "it has used all its turns" in result.text


async def test_a_subagent_stops_when_the_session_has_no_turns_left(tmp_path: Path):
    lead = replace(LEAD, limits=Limits(max_turns=3))
    model = troupe({"begin": once(ask("go")), "task go": lambda _: calls("nothing")})
    result, events = await played(tmp_path, model, lead)
    assert result.reason == "max_turns"
    [birth] = births(events)
    ended = [
        event.payload.reason
        for event in events
        if isinstance(event.payload, StatusIdle) and event.thread_id == birth.session_thread_id
    ]
    assert ended == ["max_turns"]


async def test_spending_of_subagents_counts_for_them_and_the_session(tmp_path: Path):
    model = troupe({"begin": once(ask("a") + ask("b")), "task": reply("x")})
    result, events = await played(tmp_path, model)
    thread_tree = ThreadTree.of(events, events[0].thread_id)
    turns = {node.name: node.spend_account.spending.turns for node in thread_tree.nodes.values()}
    assert thread_tree.main.spend_account.spending.turns == 4
    assert turns["general"] == 1
    assert result.usage == thread_tree.main.spend_account.usage


async def test_subagents_over_the_concurrency_limit_are_refused(tmp_path: Path):
    many = ask("0")
    for number in range(1, 23):
        many += ask(str(number))
    model = troupe({"begin": once(many), "task": reply("x")}, latency_seconds=0.01)
    _, events = await played(tmp_path, model)
    results = [
        plain_text(e.payload.content) for e in events if isinstance(e.payload, AgentToolResult)
    ]
    refused = [text for text in results if "already running" in text]
    assert (len(results), len(refused)) == (23, 3)
    assert len(births(events)) == 20


async def test_a_coordinator_can_only_call_message_and_stop(tmp_path: Path):
    @tool
    def touch(path: str) -> str:
        """Touch a file."""
        return path

    lead = replace(LEAD, is_coordinator=True, tools=[touch])
    model = troupe({"begin": once(ask("go")), "task go": reply("x")})
    await played(tmp_path, model, lead)
    shown = {task_of(r): sorted(s.name for s in r.tools) for r in model.requests}
    assert shown["begin"] == ["agent", "send_message", "stop_agent"]
    assert "touch" in shown["task go"]


async def test_a_subagent_has_only_the_tools_of_its_type(tmp_path: Path):
    @tool
    def look(path: str) -> str:
        """Look."""
        return path

    @tool
    def change(path: str) -> str:
        """Change."""
        return path

    narrow = Subagent(name="narrow", description="", prompt="Be narrow.", tools=("look",))
    lead = Agent(name="lead", tools=[look, change], subagents=(narrow,))
    model = troupe({"begin": once(ask("go")), "task go": reply("x")})
    await played(tmp_path, model, lead)
    child = next(request for request in model.requests if task_of(request) == "task go")
    assert {spec.name for spec in child.tools} == {"history_read", "history_search", "look"}
    assert "Be narrow." in child.system[0]


async def test_an_interrupt_stops_all_threads_and_wakes_none(tmp_path: Path):
    model = troupe(
        {"begin": once(ask("a") + ask("b", run_in_background=True)), "task": reply("never")}
    )
    blocked = anyio.Event()

    class Stuck(Scripted):
        async def stream(self, request: Request):
            if "task" in task_of(request):
                blocked.set()
                await anyio.sleep_forever()
            async for delta in model.stream(request):
                yield delta

    async with staged(tmp_path, Stuck()) as runtime:
        session = await runtime.start(LEAD, "begin")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run)
                await blocked.wait()
                await session.interrupt()
        events = await session.events()
        assert await session.run() is None
    thread_tree = ThreadTree.of(events, events[0].thread_id)
    assert [node.thread.running for node in thread_tree.nodes.values()] == [False] * 3
    reasons = {node.thread.last_reason for node in thread_tree.nodes.values()}
    assert reasons <= {"interrupted_tools", "interrupted_streaming"}
    assert all(not node.thread.unsettled_calls() for node in thread_tree.nodes.values())


async def test_stop_agent_ends_a_background_subagent(tmp_path: Path):
    def lead(request: Request) -> ScriptAnswer:
        match turn_of(request):
            case 0:
                return ask("endless", run_in_background=True)
            case 1:
                return calls("stop_agent", to="general")
            case _:
                return says(f"then: {newest(request)}")

    class Endless(Scripted):
        async def stream(self, request: Request):
            if "task endless" in task_of(request):
                await anyio.sleep_forever()
            async for delta in super().stream(request):
                yield delta

    result, _ = await played(tmp_path, Endless(otherwise=lead))
    assert "has stopped" in result.text


async def test_an_unknown_subagent_type_is_reported_with_the_known_ones(tmp_path: Path):
    model = troupe({"begin": once(ask("x", subagent_type="wizard"))})
    result, _ = await played(tmp_path, model)
    assert "there is no wizard; there are explore, general, plan, verify, fork" in result.text


async def test_two_hundred_types_are_listed_with_shortened_descriptions(tmp_path: Path):
    many = tuple(
        Subagent(name=f"expert-{number}", description="Knows it. " * 60, prompt="Work.")
        for number in range(200)
    )
    model = troupe({"begin": reply("done")})
    async with staged(tmp_path, model) as runtime:
        lead = Agent(name="lead", instructions="Lead.", subagents=many)
        await (await runtime.start(lead, "begin")).run()
    [spec] = [spec for spec in model.requests[0].tools if spec.name == "agent"]
    assert len(spec.description) < 30_000
    assert all(f"- expert-{number}: Knows it. Knows it." in spec.description for number in (0, 199))
