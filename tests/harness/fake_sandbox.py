"""A stand-in for a sandbox: effects in a file outside the log, and a model that needs no memory.

An effect and its idempotency key are one line, written in one step. Nothing here knows of crashes
but the ledger's `near`, which a test makes deadly.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.lowlevel

from mainspring.capabilities.providers.scripted import ScriptLine, calls, says
from mainspring.core.content import plain_text
from mainspring.core.model import Request, ToolResultBlock, ToolSpec, ToolUse, User
from mainspring.core.tool import SAFE_READ, Call, InDoubtPolicy, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.tool_calls.crash_recovery import IN_DOUBT_TEXT


class Deed(NamedTuple):
    step: str
    key: str


class Ledger:
    """What was done. Appending a short line is atomic, also for one who is killed meanwhile."""

    def __init__(self, path: Path, near: Callable[[str], None] = lambda _: None) -> None:
        self._path = path
        self._near = near
        self.settled = anyio.Event()
        """Set, and made anew, whenever something was written to the log."""

    def deeds(self) -> list[Deed]:
        if not self._path.exists():
            return []
        return [Deed(*line.split(" ")) for line in self._path.read_text().splitlines()]

    def has(self, step: str) -> bool:
        return any(deed.step == step for deed in self.deeds())

    async def do(self, step: str, key: str) -> None:
        self._near("before effect")
        await anyio.lowlevel.checkpoint()
        file = os.open(self._path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(file, f"{step} {key}\n".encode())  # a kill does not undo it; no need to sync
        os.close(file)
        await anyio.lowlevel.checkpoint()
        self._near("after effect")

    def log_was_written(self) -> None:
        self.settled.set()
        self.settled = anyio.Event()

    async def partner_settled(self, step: str) -> None:
        """Wait until a call that runs beside this one has its result in the log."""
        while not self.has(step):
            await self.settled.wait()


def tools(ledger: Ledger) -> dict[str, Tool]:
    """One for each way to be in doubt, and a read that tells a model what it may repeat."""

    async def act(call: Call) -> ToolResult:
        step = _step(call)
        if beside := call.input.get("beside"):
            await ledger.partner_settled(str(beside))
        await ledger.do(step, call.idempotency_key)
        return _did(call)

    async def found(call: Call) -> ToolResult | None:
        known = {deed.key for deed in ledger.deeds()}
        return _did(call) if call.idempotency_key in known else None

    async def look(_: Call) -> ToolResult:
        return ToolResult.text(f"{len(ledger.deeds())} things were done so far")

    async def check(call: Call) -> ToolResult:
        return ToolResult.text("done" if ledger.has(_step(call)) else "missing")

    def acting(name: str, policy: InDoubtPolicy) -> Tool:
        def traits(given: Mapping[str, object]) -> Traits:
            return Traits(in_doubt=policy, concurrent=bool(given.get("together")))

        probe = found if policy == "probe" else None
        return Tool(spec=_spec(name), run=act, traits=traits, probe=probe)

    made = (
        acting("note", "probe"),
        acting("pay", "report"),
        acting("sign", "ask"),
        Tool(spec=_spec("look"), run=look, traits=lambda _: SAFE_READ),
        Tool(spec=_spec("check"), run=check, traits=lambda _: SAFE_READ),
    )
    return {tool.spec.name: tool for tool in made}


def _spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=f"To {name}.", input_schema={"type": "object"})


def _step(call: Call) -> str:
    return str(call.input["step"])


def _did(call: Call) -> ToolResult:
    return ToolResult.text(f"{call.name} {_step(call)}: done")


class AsksFirst(AllowAll):
    """A person must allow what is marked so."""

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        asks = bool(call.input.get("asks"))
        return Decision(decision="ask" if asks else "allow", gate="rule", rule="Ask(asks)")


ROUNDS = 19


def plan() -> list[ScriptLine]:
    """The calls of each round. With the last word, that makes twenty turns."""
    rounds: list[ScriptLine] = []
    while len(rounds) < ROUNDS:
        at = str(len(rounds))
        match len(rounds) % 7:
            case 0:
                line = calls("note", step=f"{at}a")
            case 1:
                line = calls("look", step=f"{at}a") + calls("look", step=f"{at}b")
            case 2:
                line = calls("pay", step=f"{at}a")
            case 3:
                line = calls("sign", step=f"{at}a", asks=at == "3")
            case 4:
                line = calls("note", step=f"{at}a", together=True)
                line += calls("note", step=f"{at}b", together=True, beside=f"{at}a")
            case 5:
                line = calls("note", step=f"{at}a") + calls("look", step=f"{at}b")
                line += calls("pay", step=f"{at}c")
            case _:
                line = calls("fetch", step=f"{at}a") + calls("note", step=f"{at}b", asks=True)
        rounds.append(says(f"This is round {at}.") + line)
    return rounds


PLAN = plan()
USES = [part for line in PLAN for part in line.content if isinstance(part, ToolUse)]
EFFECTS = [str(use.input["step"]) for use in USES if use.name in ("note", "pay", "sign")]
SECOND_OF_TWO = [str(use.input["step"]) for use in USES if use.input.get("beside")]
"""Effects of calls that run for as long as the one beside them."""


class Told(NamedTuple):
    """A call that was made and what came of it."""

    use: ToolUse
    result: ToolResultBlock

    @property
    def step(self) -> str:
        return str(self.use.input["step"])

    @property
    def text(self) -> str:
        return plain_text(self.result.content)

    @property
    def state(self) -> str:
        if self.use.name == "check":
            return self.text
        return "unknown" if self.result.is_error and IN_DOUBT_TEXT in self.text else "done"


def told(request: Request) -> list[Told]:
    """Every call with its result, in the order asked."""
    results = {
        part.tool_use_id: part
        for message in request.messages
        if isinstance(message, User)
        for part in message.content
        if isinstance(part, ToolResultBlock)
    }
    return [
        Told(part, results[part.id])
        for message in request.messages
        for part in message.content
        if isinstance(part, ToolUse)
    ]


def answer(request: Request) -> ScriptLine:
    """What to say is seen from what was said: look at what is unknown, repeat what is missing."""
    states: dict[str, str] = {}
    for item in told(request):
        states[item.step] = item.state
    if unknown := [step for step, state in states.items() if state == "unknown"]:
        return _together([calls("check", step=step) for step in unknown])
    if missing := {step for step, state in states.items() if state == "missing"}:
        return _together([ScriptLine((use,)) for use in USES if use.input["step"] in missing])
    for line in PLAN:
        uses = [part for part in line.content if isinstance(part, ToolUse)]
        if any(use.input["step"] not in states for use in uses):
            return line
    return says("All of it is done.")


def _together(lines: list[ScriptLine]) -> ScriptLine:
    whole = lines[0]
    for line in lines[1:]:
        whole += line
    return whole
