"""Sessions through the public Python API, as a program would use them."""

import inspect
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import anyio
import pytest

import mainspring
from mainspring import Agent, Event, InvalidInput, Limits, Runtime, open_runtime, tool
from mainspring.capabilities.providers.scripted import ScriptLine
from mainspring.config import read_settings
from mainspring.core.errors import LeaseHeld, SessionNotFound
from mainspring.core.events import Usage
from mainspring.core.model_facts import ModelFacts, Price
from mainspring.harness.budget import Budget, Charge, SpendRate
from mainspring.testing import Model, Request, Scripted, calls, fails, says
from mainspring.tools import ToolSpec


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CLERK = Agent(name="clerk", instructions="Use the tools.", tools=[add])


@asynccontextmanager
async def runtime_with(
    model: Model, folder: Path, *, budget: Budget | None = None
) -> AsyncGenerator[Runtime]:
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put(CLERK.model, model)
        runtime.budget = budget or runtime.budget
        yield runtime


def test_run_needs_only_one_call(tmp_path: Path):
    model = Scripted(calls("add", a=2, b=3), says("It is 5."))
    result = mainspring.run(CLERK, "2 + 3?", store=str(tmp_path / "log.db"), model=model)
    assert (result.text, result.reason, result.turns, result.ok) == (
        "It is 5.",
        "completed",
        2,
        True,
    )
    assert result.usage.output_tokens > 0


def test_the_top_level_has_at_most_forty_names_and_all_exist():
    assert len(mainspring.__all__) <= 40
    assert [name for name in mainspring.__all__ if not hasattr(mainspring, name)] == []
    with pytest.raises(AttributeError, match="no public name 'nonsense'"):
        _ = mainspring.nonsense


def test_importing_mainspring_imports_no_heavy_modules():
    code = "import sys, mainspring; print([m for m in sys.modules if m.split('.')[0] in"
    code += " ('aiohttp', 'anyio', 'msgspec', 'sqlite3', 'rich', 'typer')])"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"


async def test_a_conversation_continues_over_several_messages(tmp_path: Path):
    model = Scripted(says("Hello."), says("You said hi."))
    async with runtime_with(model, tmp_path) as runtime:
        session = await runtime.start(CLERK, "hi")
        assert (await session.run()) is not None
        await session.send("what did I say?")
        result = await session.run()
        assert result is not None
        assert result.text == "You said hi."
        assert len(model.requests[1].messages) == 3
        assert await session.run() is None


async def test_another_runtime_continues_the_same_session(tmp_path: Path):
    async with runtime_with(Scripted(says("one")), tmp_path) as runtime:
        session = await runtime.start(CLERK, "first")
        await session.run()
    model = Scripted(says("two"))
    async with runtime_with(model, tmp_path) as runtime:
        resumed = await runtime.resume(CLERK, session.id)
        await resumed.send("second")
        result = await resumed.run()
        assert result is not None
        assert result.text == "two"
        assert len(model.requests[0].messages) == 3
        with pytest.raises(SessionNotFound):
            await runtime.resume(CLERK, "sesn_nowhere")


async def test_a_fork_diverges_and_leaves_its_parent_unchanged(tmp_path: Path):
    model = Scripted(says("tea"), says("coffee"))
    async with runtime_with(model, tmp_path) as runtime:
        session = await runtime.start(CLERK, "what do you drink?")
        await session.run()
        before = await session.events()
        fork = await session.fork(at=2)
        await fork.send("in the morning")
        result = await fork.run()
        assert result is not None
        assert result.text == "coffee"
        assert await session.events() == before


async def test_two_workers_do_not_run_the_same_session(tmp_path: Path):
    async with (
        runtime_with(Scripted(says("mine")), tmp_path) as one,
        runtime_with(Scripted(says("yours")), tmp_path) as other,
    ):
        session = await one.start(CLERK, "go")
        await one.log.hold(session.id, owner="another worker")
        with pytest.raises(LeaseHeld):
            await (await other.resume(CLERK, session.id)).run()


async def test_the_session_of_a_killed_process_is_taken_over_at_once(tmp_path: Path):
    code = inspect.cleandoc("""
        import sys, anyio
        from mainspring import Agent, open_runtime
        from mainspring.log.session_lease import local_owner
        async def main():
            async with open_runtime(store=sys.argv[1]) as runtime:
                await runtime.log.hold(sys.argv[2], owner=local_owner("wrkr"), seconds=600)
                print("held", flush=True)
                await anyio.sleep_forever()
        anyio.run(main)
    """)
    async with runtime_with(Scripted(says("alive")), tmp_path) as runtime:
        session = await runtime.start(CLERK, "go")
        with anyio.fail_after(60):
            async with await anyio.open_process(
                [sys.executable, "-c", code, str(tmp_path / "log.db"), session.id]
            ) as child:
                assert child.stdout is not None
                assert (await child.stdout.receive()).startswith(b"held")
                with pytest.raises(LeaseHeld):
                    await session.run()
                os.kill(child.pid, signal.SIGKILL)
                await child.wait()
                result = await session.run()
        assert result is not None
        assert result.text == "alive"


async def test_a_follower_sees_the_events_of_a_run(tmp_path: Path):
    async with runtime_with(Scripted(calls("add", a=1, b=1), says("2")), tmp_path) as runtime:
        session = await runtime.start(CLERK, "1 + 1?")
        seen: list[Event] = []

        async def follow() -> None:
            async for event in session.follow():
                seen.append(event)
                if event.type == "session.status_idle":
                    return

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                await session.run()
        assert seen == await session.events()


DEAR = Price(
    input=Decimal(1000),
    output=Decimal(1000),
    cache_read=Decimal(1000),
    cache_write=Decimal(1000),
    date="2026-11-15",
)


class ExpensiveModels:
    """A shelf with one model, whose every token costs a tenth of a cent."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def open(self, name: str) -> Model:
        return self.model

    def put(self, name: str, model: Model) -> None:
        self.model = model

    def connect_early(self, name: str) -> None:
        raise NotImplementedError

    def related(self, wanted: str, to: str) -> str:
        return to

    def resolve(self, name: str) -> str:
        return name

    def facts(self, name: str) -> ModelFacts:
        return ModelFacts(id=name, window=100_000, max_output=1000, price=DEAR)

    def cost(self, name: str, usage: Usage) -> Decimal:
        return Decimal("0.40")


class AgentLedger:
    """A ledger of one agent, with a limit of 3 dollars."""

    def __init__(self) -> None:
        self.committed: dict[str, Decimal] = {}

    async def reserve(self, charge: Charge) -> str | None:
        assert charge.agent == "clerk"
        if sum(self.committed.values()) + charge.cost_usd > 3:
            return "the agent has used today's dollars"
        self.committed[charge.reservation_id] = charge.cost_usd
        return None

    async def settle(self, reservation_id: str, cost_usd: Decimal) -> None:
        self.committed[reservation_id] = cost_usd


async def test_an_agent_has_a_daily_limit_over_all_its_sessions(tmp_path: Path):
    ledger = AgentLedger()
    budget = Budget(ledger=ledger)
    async with runtime_with(Scripted(), tmp_path, budget=budget) as runtime:
        runtime.models = ExpensiveModels(Scripted(otherwise=says("ok")))
        reasons: list[str] = []
        for _ in range(6):
            result = await (await runtime.start(CLERK, "go")).run()
            assert result is not None
            reasons.append(result.reason)
        assert set(reasons) == {"completed", "budget_reached"}
        assert reasons == sorted(reasons, reverse=True)
        assert sum(ledger.committed.values()) <= 3


async def test_spending_too_fast_stops_the_run(tmp_path: Path):
    rate = SpendRate(Decimal("1"), seconds=60, clock=lambda: 0.0)
    async with runtime_with(Scripted(), tmp_path, budget=Budget(rate=rate)) as runtime:
        runtime.models = ExpensiveModels(Scripted(otherwise=calls("add", a=1, b=1)))
        result = await (await runtime.start(CLERK, "go")).run()
        assert result is not None
        assert result.reason == "budget_reached"
        assert "US dollars in 60 s" in (result.detail or "")


async def test_max_turns_of_the_agent_ends_the_run(tmp_path: Path):
    agent = Agent(tools=[add], limits=Limits(max_turns=1))
    async with runtime_with(Scripted(calls("add", a=1, b=2)), tmp_path) as runtime:
        result = await (await runtime.start(agent, "go")).run()
        assert result is not None
        assert (result.reason, result.turns) == ("max_turns", 1)


async def test_two_runs_of_a_session_in_one_process_exclude_each_other(tmp_path: Path):
    inside, release = anyio.Event(), anyio.Event()
    ran: list[int] = []

    @tool(name="add", in_doubt="retry")
    async def slow(a: int, b: int) -> int:
        """Add, slowly."""
        ran.append(a)
        inside.set()
        await release.wait()
        return a + b

    model = Scripted(calls("add", a=1, b=1), says("2"))
    async with runtime_with(model, tmp_path) as runtime:
        session = await runtime.start(Agent(tools=[slow], model=CLERK.model), "1 + 1?")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run)
                await inside.wait()
                with pytest.raises(LeaseHeld):
                    await (await runtime.resume(session.agent, session.id)).run()
                release.set()
        assert ran == [1]


async def test_a_client_runs_its_own_tools(tmp_path: Path):
    lookup = ToolSpec(name="lookup", description="Look it up.", input_schema={"type": "object"})
    agent = Agent(model=CLERK.model, client_tools=[lookup])
    model = Scripted(calls("lookup", key="a"), says("It is 42."))
    async with runtime_with(model, tmp_path) as runtime:
        session = await runtime.start(agent, "what is a?")
        waiting = await session.run()
        assert waiting is not None
        [call_id] = waiting.waiting_for
        await session.settle(call_id, "42")
        result = await session.run()
        assert result is not None
        assert (result.reason, result.text) == ("completed", "It is 42.")
        assert [spec.name for spec in model.requests[0].tools].count("lookup") == 1


async def test_a_key_printed_by_a_tool_does_not_reach_the_log(tmp_path: Path):
    @tool
    def leak() -> str:
        """Print the environment."""
        return "OPENAI_API_KEY=sk-very-secret-value"

    settings = read_settings(
        store=str(tmp_path / "log.db"), environ={"OPENAI_API_KEY": "sk-very-secret-value"}
    )
    agent = Agent(model="scripted:demo", tools=[leak])
    async with open_runtime(settings) as runtime:
        runtime.models.put("scripted:demo", Scripted(calls("leak"), says("done")))
        session = await runtime.start(agent, "my key is sk-very-secret-value")
        await session.run()
        bodies = b"".join(event.body for event in await session.events())
        assert b"sk-very-secret-value" not in bodies
        assert bodies.count(b"[OPENAI_API_KEY]") == 3


async def test_two_tools_with_one_name_are_refused(tmp_path: Path):
    async with runtime_with(Scripted(says("never")), tmp_path) as runtime:
        session = await runtime.start(Agent(model=CLERK.model, tools=[add, add]), "go")
        with pytest.raises(InvalidInput, match="two tools called 'add'"):
            await session.run()


async def test_the_result_has_only_the_text_of_this_run(tmp_path: Path):
    model = Scripted(says("first"), fails("forbidden", "revoked"))
    async with runtime_with(model, tmp_path) as runtime:
        session = await runtime.start(CLERK, "one")
        await session.run()
        await session.send("two")
        result = await session.run()
        assert result is not None
        assert (result.reason, result.text) == ("model_error", "")


async def test_a_truncated_tool_result_can_be_read_in_full(tmp_path: Path):
    @tool(max_chars=100)
    def long() -> str:
        """Say much."""
        return "".join(f"line {number}\n" for number in range(200))

    def read(request: Request) -> ScriptLine:
        blob = re.findall(r"sha256:[0-9a-f]{64}", str(request.messages[-1]))[0]
        return calls("history_read", blob=blob, offset=1000)

    model = Scripted(calls("long"), read, calls("history_read", blob="sha256:no"), says("done"))
    async with runtime_with(model, tmp_path) as runtime:
        session = await runtime.start(Agent(model=CLERK.model, tools=[long]), "go")
        result = await session.run()
        assert result is not None
        assert result.ok
        assert "line 199" in str(model.requests[2].messages[-1])
        assert "no blob" in str(model.requests[3].messages[-1])
