"""An agent with effects that can be counted, and a model that needs no memory."""

from collections.abc import Callable
from pathlib import Path

from tests.harness.fake_sandbox import Ledger, told, tools

from mainspring import Agent
from mainspring.capabilities.providers.scripted import ScriptLine, calls, says
from mainspring.core.model import Request
from mainspring.harness.limits import Limits


class Once(Ledger):
    """Knows the keys it has seen, as whoever offers an idempotency key does."""

    async def do(self, step: str, key: str) -> None:
        if key not in {deed.key for deed in self.deeds()}:
            await super().do(step, key)


def ledger_of(folder: Path, session_id: str) -> Once:
    return Once(folder / f"{session_id}.ledger")


def clerk(folder: Path, session_id: str) -> Agent:
    made = tools(ledger_of(folder, session_id))
    return Agent(
        name="clerk",
        model="scripted:clerk",
        tools=[made[name] for name in ("note", "pay", "check")],
        limits=Limits(max_turns=1000),
    )


def steps(count: int, *, is_gentle: bool) -> dict[str, str]:
    """Each step with the tool that does it. Gentle: only what may safely be tried again by one
    who does not know that he has been replaced."""
    return {str(n): "pay" if n % 3 == 2 and not is_gentle else "note" for n in range(count)}


def answering(plan: dict[str, str]) -> Callable[[Request], ScriptLine]:
    """Look at what is unknown, repeat what is missing, go on with what was not done yet."""

    def answer(request: Request) -> ScriptLine:
        states = {item.step: item.state for item in told(request)}
        for step, tool in plan.items():
            match states.get(step):
                case "done":
                    continue
                case "unknown":
                    return calls("check", step=step)
                case _:
                    return calls(tool, step=step)
        return says("All of it is done.")

    return answer
