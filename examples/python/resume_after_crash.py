"""Kill this program at any moment and start it again: it goes on, and no letter is sent twice."""

from pathlib import Path

from mainspring import Agent, Call, ToolResult, run, tool

OUTBOX = Path("outbox")
OUTBOX.mkdir(exist_ok=True)


async def was_sent(call: Call) -> ToolResult | None:
    """After a crash in the middle of a call: did it take effect?"""
    return ToolResult.text("sent") if (OUTBOX / call.idempotency_key).exists() else None


@tool(probe=was_sent)
def send(to: str, text: str, call: Call) -> str:
    """Send a letter."""
    (OUTBOX / call.idempotency_key).write_text(f"{to}: {text}")
    return "sent"


clerk = Agent(name="clerk", tools=[send])
print(run(clerk, "Invite Ann and Bob.", key="resume_after_crash").output, len([*OUTBOX.iterdir()]))
