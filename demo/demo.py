"""`make demo`: an agent repairs a small project, is killed with SIGKILL half-way, and goes on.

No key, no server: the offline model does the talking. Everything else is real: the log, the tools,
the processes and the kill.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import anyio
from rich.console import Console
from rich.text import Text

from mainspring import Agent, Event, SessionLog, open_runtime
from mainspring.core.content import plain_text
from mainspring.core.events import (
    AgentMessage,
    AgentToolResult,
    AgentToolUse,
    ModelRequestEnded,
    SessionWoken,
    StatusIdle,
    ToolCallInDoubt,
    ToolCallStarted,
    UserMessage,
)
from mainspring.harness.limits import prompt_tokens
from mainspring.log.verify import verify

ROOT = Path(__file__).parent.parent
TASK = "A test of this project fails. Find out why, repair it, and show that it works."
console = Console(highlight=False, soft_wrap=True)


async def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mainspring-demo-") as folder:
        workspace = Path(folder) / "project"
        shutil.copytree(ROOT / "demo" / "project", workspace)
        store = str(Path(folder) / "demo.db")
        async with open_runtime(store=store) as runtime:
            session = await runtime.start(Agent(name="repairer"), TASK, title="Repair prices")
            say("bold", "An agent repairs a project; we kill it half-way.")
            say("dim", f"session {session.id}, log {store}\n")
            with anyio.fail_after(60):
                await first_life(runtime.log, session.id, store, workspace)
                await second_life(runtime.log, session.id, store, workspace)
            await show(runtime.log, session.id, workspace)
    return 0


def start(store: str, session_id: str, workspace: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "demo" / "worker.py"), store, session_id, str(workspace)],
        cwd=ROOT,
        env={**os.environ, "MAINSPRING_MODEL": "scripted:demo"},
    )


async def first_life(log: SessionLog, session_id: str, store: str, workspace: Path) -> None:
    worker = start(store, session_id, workspace)
    say("bold cyan", f"process {worker.pid} takes the session")
    writes: set[str] = set()
    async for event in log.follow(session_id):
        tell(event)
        if isinstance(event.payload, AgentToolUse) and event.payload.name == "write_file":
            writes.add(event.id)
        if isinstance(event.payload, ToolCallStarted) and event.payload.tool_use_id in writes:
            os.kill(worker.pid, signal.SIGKILL)
            await anyio.to_thread.run_sync(worker.wait)
            say("bold red", f"kill -9 {worker.pid}: in the middle of writing the file\n")
            return


async def second_life(log: SessionLog, session_id: str, store: str, workspace: Path) -> None:
    seen = (await log.session(session_id)).head.seq
    worker = start(store, session_id, workspace)
    say("bold cyan", f"process {worker.pid} takes over where the log ends, after event {seen}")
    async for event in log.follow(session_id, after=seen):
        tell(event)
        if isinstance(event.payload, StatusIdle):
            await anyio.to_thread.run_sync(worker.wait)
            return


def tell(event: Event) -> None:
    """One line an event that a person would want to see."""
    match event.payload:
        case UserMessage(content=content):
            line(event, "bold", f"user: {plain_text(content)}")
        case AgentMessage(content=content):
            line(event, "green", f"agent: {plain_text(content)}")
        case AgentToolUse(name=name, input=given):
            path = given.get("path")
            line(event, "yellow", f"  -> {name}({path or ''})")
        case AgentToolResult(content=content):
            text = plain_text(content).strip().splitlines() or [""]
            line(event, "dim", f"     {text[-1]}")
        case SessionWoken(attempt=attempt):
            line(event, "cyan", f"  woken, attempt {attempt}")
        case ToolCallInDoubt(policy=policy):
            line(event, "cyan", f"  one call was started and not settled: {policy}")
        case _:
            pass


def line(event: Event, style: str, text: str) -> None:
    console.print(Text.assemble((f"{event.seq:>4} ", "dim"), (text, style)))


def say(style: str, text: str) -> None:
    console.print(Text(text, style=style))


async def show(log: SessionLog, session_id: str, workspace: Path) -> None:
    payloads = [event.payload for event in await log.read(session_id)]
    ends = [payload for payload in payloads if isinstance(payload, ModelRequestEnded)]
    report = await verify(log, session_id)
    cached = sum(end.model_usage.cache_read_input_tokens for end in ends)
    given = sum(prompt_tokens(end.model_usage) for end in ends)
    cost = sum(Decimal(end.cost_usd or 0) for end in ends)
    calls = sum(isinstance(payload, AgentToolUse) for payload in payloads)
    settled = sum(isinstance(payload, AgentToolResult) for payload in payloads)
    fixed = "price - price * rebate" in (workspace / "prices.py").read_text(encoding="utf-8")
    say("bold", "\nWhat is left:")
    for what, found in {
        "the project": "repaired" if fixed else "NOT repaired",
        "the log": f"{report.events} events, chain {'intact' if report.ok else 'BROKEN'}",
        "the calls": f"{calls} asked, {settled} settled, each exactly once",
        "the model": f"{len(ends)} requests, {given} tokens in,"
        f" {cached * 100 // max(given, 1)} % of them from cache",
        "the cost": f"${cost:.4f} (the offline model is free)",
    }.items():
        say("", f"  {what:<13} {found}")
    if not (fixed and report.ok and calls == settled):
        raise SystemExit("the demonstration did not go as it should")


if __name__ == "__main__":
    sys.exit(anyio.run(main))
