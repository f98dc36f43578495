"""Guardrails are functions that return why something must not pass, or nothing."""

from mainspring import Agent, Call, run
from mainspring.hooks import guardrail


def send(to: str, text: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@guardrail("tool", "send")
def known_people_only(call: Call) -> str | None:
    return None if call.input["to"] in ("Ann", "Bob") else "write to Ann or Bob only"


@guardrail("output")
def no_promises(text: str) -> str | None:
    return "it promises something" if "guarantee" in text else None


clerk = Agent(name="clerk", tools=[send], hooks=[known_people_only, no_promises])
result = run(clerk, "Tell Carl that the lift works.", key="guardrail")
print(result.ok, result.reason, "|", result.detail)
