"""Lives of a worker whose session has several threads: forked, killed, lived again to the end.

`python -m tests.runtime.subagents.killable_worker` forks one for each order. The model needs no
memory: what each thread says next is seen from what it was told so far.
"""

import re
from pathlib import Path
from typing import cast

import anyio
from msgspec import Struct
from tests.environ import boundary
from tests.harness.fake_sandbox import Ledger, told, tools
from tests.harness.killable_worker import Fuse, Fused, Streaming, begin, ended, serve
from tests.keys import VAULT_KEY
from tests.runtime.subagents.scripted_threads import Play, newest, task_of, troupe, turn_of
from tests.runtime.subagents.thread_states import check_live

from mainspring import Agent, open_runtime
from mainspring.capabilities.providers.scripted import ScriptAnswer, ScriptLine
from mainspring.config import read_settings
from mainspring.core.model import Request, ToolUse
from mainspring.core.tool import Tool
from mainspring.function_tools.wrap import renamed, with_approval
from mainspring.log.store import Store
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS
from mainspring.testing import calls, says

CROWD = 20
ALL, ASK_THE_CROWD = "Do all of it.", "Ask the crowd."
EFFECTS = {
    ALL: ("deep", "noted", "paid", "signed"),
    ASK_THE_CROWD: tuple(f"crowd-{number:02}" for number in range(CROWD)),
}
"""What is done once, by the first message of a session."""
_LIFE_SECONDS = 60
_THREAD = re.compile(r"\[general (sthr_\w+):")


class Order(Struct, frozen=True, kw_only=True):
    store: str
    session_id: str
    ledger: str
    where: str = ""
    number: int = 0


def ask(task: str, **more: object) -> ScriptLine:
    return calls("agent", description=task, prompt=f"task {task}", **more)


def lead(request: Request) -> ScriptAnswer:
    """Four at once, one of them in the background; then more for one that has ended."""
    if turn_of(request) == 0:
        line = ask("nest") + ask("pay") + ask("sign") + ask("slow", run_in_background=True)
        return says("I call four.") + line
    results = {item.use.input.get("description"): item.text for item in told(request)}
    if None not in results:  # nothing was sent yet
        found = _THREAD.search(results.get("pay", ""))
        if found is not None:
            return calls("send_message", to=found[1], message="once more, please")
    return says(f"Heard {turn_of(request)}.")


def crowd(request: Request) -> ScriptAnswer:
    if turn_of(request):
        return says("All of them have answered.")
    line = ask("crowd-00")
    for number in range(1, CROWD):
        line += ask(f"crowd-{number:02}")
    return line


def nest(request: Request) -> ScriptAnswer:
    if turn_of(request) == 0:
        return ask("deep")
    return says(f"nested: {newest(request)}")


def doing(*plan: ScriptLine) -> Play:
    """One thing after the other; what is not known is looked up, and done if it is missing."""

    def play(request: Request) -> ScriptAnswer:
        states = {str(item.use.input["step"]): item.state for item in told(request)}
        for line in plan:
            [use] = [part for part in line.content if isinstance(part, ToolUse)]
            step = str(use.input["step"])
            match states.get(step):
                case None | "missing":
                    return line
                case "unknown":
                    return calls("check", step=step)
                case _:
                    pass
        return says(f"{task_of(request)} is done, after {newest(request)[-30:]!r}")

    return play


def crowded(request: Request) -> ScriptAnswer:
    return doing(calls("note", step=task_of(request).removeprefix("task ")))(request)


PARTS: dict[str, Play] = {
    ALL: lead,
    ASK_THE_CROWD: crowd,
    "task nest": nest,
    "task deep": doing(calls("note", step="deep")),
    "task pay": doing(calls("note", step="noted"), calls("pay", step="paid")),
    "task sign": doing(calls("approve", step="signed")),
    "task slow": lambda _: says("slow, but here"),
    "task crowd": crowded,
}


def agent(ledger: Ledger) -> Agent:
    made = tools(ledger)
    approve: Tool = with_approval(renamed(made["note"], "approve"))
    brought = [made["note"], made["pay"], made["check"], approve]
    return Agent(name="lead", model="scripted:crew", tools=brought, subagents=BUILT_IN_SUBAGENTS)


async def live(order: Order, fuse: Fuse) -> None:
    """Run the session and be the person whom it asks, until it has completed."""
    ledger = Ledger(Path(order.ledger), fuse.near)
    folder = Path(order.ledger).parent
    environ = {**boundary(), "MAINSPRING_VAULT_KEY": VAULT_KEY}
    settings = read_settings(store=order.store, environ=environ, folder=folder)
    async with open_runtime(settings) as runtime:
        runtime.log.store = cast("Store", Fused(runtime.log.store, fuse, ledger.log_was_written))
        session = await _resumed(runtime, order, ledger, fuse)
        for _ in range(5):
            result = await session.run()
            await check_live(session)
            if result is None or result.reason == "completed":
                return
            assert result.reason == "requires_action", result
            for call_id in result.waiting_for:
                await session.answer(call_id, "allow", client_id=f"{call_id} yes")
        raise AssertionError("it waits and waits")


async def _resumed(runtime: Runtime, order: Order, ledger: Ledger, fuse: Fuse) -> Session:
    made = agent(ledger)
    runtime.models.put(made.model, Streaming(troupe(PARTS), fuse))
    return await runtime.resume(made, order.session_id)


async def _live(order: Order) -> None:
    with anyio.fail_after(_LIFE_SECONDS):
        await live(order, Fuse(order.where, order.number))


if __name__ == "__main__":
    serve(Order, lambda order: ended(begin(_live, order)))
