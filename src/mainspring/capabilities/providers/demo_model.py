"""The offline demonstration model: no key, no server, no intelligence, and it says so.

Its answer is a function of the request alone, so a session that it works on can be killed and
resumed like any other. Given tools to list, read, write and test, it repairs the demo project.
"""

from __future__ import annotations

from mainspring.capabilities.providers.scripted import Scripted, ScriptLine, calls, says
from mainspring.core.content import TextBlock, plain_text
from mainspring.core.model import Assistant, Request, ToolResultBlock, User

LABEL = "[offline demonstration model]"
REPAIR_TOOLS = frozenset({"list_files", "read_file", "write_file", "run_tests"})


def demo_model() -> Scripted:
    return Scripted(otherwise=demo_answer, chunk_chars=8, delta_seconds=0.01)


def demo_answer(request: Request) -> ScriptLine:
    if {tool.name for tool in request.tools} >= REPAIR_TOOLS:
        return _repair(request)
    return says(
        f"{LABEL} You said: {_last_user_text(request)!r}. I only repeat what I am told; set"
        " ANTHROPIC_API_KEY or OPENAI_API_KEY, or give --model, for one that thinks."
    )


def _repair(request: Request) -> ScriptLine:
    """Look, test, read, repair, test again, report: one step for each answer so far."""
    results = _results(request)
    match len(results):
        case 0:
            return says(f"{LABEL} I look at what is there.") + calls("list_files")
        case 1:
            return says("The tests first.") + calls("run_tests")
        case 2:
            return says("One fails. I read what it tests.") + calls("read_file", path="prices.py")
        case 3:
            repaired = results[-1].replace(
                "return price + price * rebate", "return price - price * rebate"
            )
            return says("A rebate must lower the price, not raise it.") + calls(
                "write_file", path="prices.py", content=repaired
            )
        case 4:
            return says("I check it.") + calls("run_tests")
        case _:
            verdict = "pass" if "passed" in results[-1] and "failed" not in results[-1] else "fail"
            return says(
                f"{LABEL} `prices.py` added the rebate instead of taking it off. I changed the"
                f" sign and ran the tests again: they {verdict}."
            )


def _results(request: Request) -> list[str]:
    """Texts of the tool results since the user last said something."""
    found: list[str] = []
    for message in request.messages:
        if isinstance(message, Assistant):
            continue
        if not any(isinstance(part, ToolResultBlock) for part in message.content):
            found = []
        found += [
            plain_text(part.content)
            for part in message.content
            if isinstance(part, ToolResultBlock)
        ]
    return found


def _last_user_text(request: Request) -> str:
    for message in reversed(request.messages):
        if isinstance(message, User):
            for part in reversed(message.content):
                if isinstance(part, TextBlock) and not part.text.startswith("<system-note>"):
                    return part.text
    return ""
