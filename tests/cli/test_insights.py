"""`mainspring insights`: what the logs of many sessions show together."""

import json
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from tests.cli.conftest import Run, opened

from mainspring.core.content import TextBlock
from mainspring.core.events import (
    AgentAdopted,
    AgentToolResult,
    AgentToolUse,
    Failure,
    ModelRequestEnded,
    ModelRequestStarted,
    SessionCreated,
    SkillUsed,
    ToolCallAuthorized,
    Usage,
    UserMessage,
    UserToolConfirmation,
)
from mainspring.core.model import ToolSpec
from mainspring.core.sender import Origin, local_user
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.session.pinned_agent import AgentDefinition
from mainspring.runtime.skills.skill import Skill

FOREIGN = Path(__file__).parent.parent / "fixtures" / "foreign_sessions"
TOOLS = tuple(
    ToolSpec(name=name, description="What it does. " * 20, input_schema={})
    for name in ("bash", "read", "mcp__maps__route")
)
SKILLS = tuple(
    Skill(name=name, description="When to use it. " * 20, file="", folder="", hash="")
    for name in ("release", "poems")
)


class SessionWriter:
    """A session that is written as a run would."""

    def __init__(self, writer: Writer, prefix: str) -> None:
        self.writer = writer
        self.prefix = prefix

    async def call(
        self, name: str, result: str, *, error: Failure | None = None, **given: object
    ) -> str:
        [use] = await self.writer.append(AgentToolUse(name=name, input=given))
        content = (TextBlock(result),)
        await self.writer.append(
            AgentToolResult(
                tool_use_id=use.id, content=content, is_error=error is not None, error=error
            )
        )
        return use.id

    async def ask(self, name: str, answer: Literal["allow", "deny"], **given: object) -> None:
        [use] = await self.writer.append(AgentToolUse(name=name, input=given))
        await self.writer.append(
            ToolCallAuthorized(tool_use_id=use.id, decision="ask", gate="default"),
            UserToolConfirmation(tool_use_id=use.id, result=answer),
            AgentToolResult(tool_use_id=use.id, content=(TextBlock("done"),)),
        )

    async def request(self, usage: Usage, cache_break: str | None = None) -> None:
        [start] = await self.writer.append(
            ModelRequestStarted(model="m", prefix=self.prefix, cache_break=cache_break)
        )
        await self.writer.append(
            ModelRequestEnded(model_request_start_id=start.id, model_usage=usage)
        )


async def write_sessions(store: Path) -> None:
    async with opened(store) as log:
        for number, said in enumerate(
            (
                "Fix the build. Never use npm here, use pnpm.",
                "Add a page. Do not use npm, use pnpm!",
                "Never use npm but pnpm. Then go on.",
            )
        ):
            await write_session(log, number, said)
        graded = await log.create(SessionCreated(origin=Origin(type="grader")))
        writer = await log.hold(graded.id, owner="w")
        writing = SessionWriter(writer, "")
        for _ in range(5):
            await writing.call("bash", "no", error="failed", command="grader only")
        await writer.release()


async def write_session(log: SessionLog, number: int, said: str) -> None:
    session = await log.create(SessionCreated())
    sender = local_user("ada")
    await log.submit(session.id, UserMessage(content=(TextBlock(said),)), sender=sender)
    prefix = PromptPrefix(model="m", system=("You are.",), tools=TOOLS)
    kept = await log.put_blob(session.id, prefix.encoded, media_type="application/json")
    defined = msgspec.json.encode(AgentDefinition(name="a", skills=SKILLS))
    definition = await log.put_blob(session.id, defined, media_type="application/json")
    writer = await log.hold(session.id, owner="w")
    await writer.fold_inbox()
    await writer.append(
        AgentAdopted(definition=definition.hash), SkillUsed(name="release", hash="", by="user")
    )
    writing = SessionWriter(writer, kept.hash)
    await writing.request(Usage(cache_creation_input_tokens=9_000))
    await writing.call("bash", "npm ERR! missing", error="failed", command="npm  test")
    await writing.call("read", "all of it", file_path="notes.md")
    await writing.call("Read", "all of it", file_path="notes.md")
    await writing.call("bash", f"{number} line\n" * 4_000, command="cat big.log")
    await writing.call(
        "edit",
        f"line {number}: 'x{number}' is not in /a/{number}.py",
        error="failed",
        file_path="a",
    )
    await writing.ask("bash", "allow", command="git push origin main")
    await writing.ask("bash", "deny", command="rm -rf build")
    for _ in range(3):
        await writing.request(Usage(input_tokens=50, cache_read_input_tokens=9_000))
    await writing.request(Usage(input_tokens=9_000), cache_break="model changed")
    await writer.release()


def test_insights_report_waste_failures_and_missing_rules(mainspring: Run, store: Path):
    anyio.run(write_sessions, store)
    mainspring("sessions", "import", str(FOREIGN))
    report = json.loads(mainspring("insights", "--json").stdout)
    assert (report["sessions"], report["imported"]) == (8, 5)
    found = {(item["topic"], item["title"].partition(": ")[2]): item for item in report["insights"]}
    expected = {
        ("repeated_call", "read notes.md"): (3, 3),
        ("huge_result", "bash cat big.log"): (3, 3),
        ("cache_miss", "model changed"): (3, 3),
        ("failing_command", "npm test"): (3, 3),
        ("failing_tool", "edit: line N: '…' is not in …"): (3, 3),
        ("correction", "Never use npm but pnpm"): (3, 3),
        ("always_allowed", "Bash(git push origin main)"): (3, 3),
        ("always_denied", "Bash(rm -rf build)"): (3, 3),
        ("unused_tool", "mcp__maps__route"): (15, 3),
        ("unused_skill", "poems"): (15, 3),
    }
    for key, (count, sessions) in expected.items():
        assert key in found, (key, sorted(found))
        insight = found[key]
        assert (insight["count"], insight["sessions"]) == (count, sessions), key
        assert len(insight["places"]) == sessions
        assert insight["action"]
    assert ("unused_skill", "release") not in found
    assert ("unused_tool", "bash") not in found
    assert "grader" not in json.dumps(report)
    assert found["cache_miss", "compaction"]["sessions"] == 1  # of an imported session
    assert report["insights"] == json.loads(mainspring("insights", "--json").stdout)["insights"]

    [place] = [item for item in found["failing_command", "npm test"]["places"]][:1]
    shown = mainspring("log", "show", place["session_id"], "--json").stdout.splitlines()
    assert "npm ERR!" in shown[place["events"][0] - 1]

    told = mainspring("insights", "--limit", "1").stdout
    for words in ("Waste", "Repeated failures", "Missing rules", "Unused tools and skills"):
        assert words in told
    assert "do: " in told
    assert "--limit" in told
    recent = json.loads(mainspring("insights", "--since", "30d", "--json").stdout)
    assert (recent["sessions"], recent["imported"]) == (3, 0)


def test_insights_without_sessions_say_that_there_are_none(mainspring: Run):
    done = mainspring("insights")
    assert (done.returncode, "there are no sessions yet" in done.stderr) == (1, True)
