"""`make demo`: what a session log is good for, shown with real processes and a real `kill -9`."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import anyio
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule

from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event, EventLine, message_text
from mainspring.core.events import AgentMessage, AgentToolUse, UserMessage
from mainspring.core.facts import SessionCreated
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.transfer import export_lines
from mainspring.log.upcast import read_line
from mainspring.log.verify import VerifyReport, verify

WORKERS = Path(__file__).with_name("workers.py")
COLORS = {"user": "cyan", "agent": "green", "tool_call": "yellow", "session": "magenta"}
ASKED = "Release version 1.4.0, please."
ADDED = "One more thing: next time, staging first."
INSTEAD = "Wait. Before releasing, let me run the tests."

console = Console(highlight=False, soft_wrap=True)


class Step:
    number = 0


def step(title: str, *words: str) -> None:
    Step.number += 1
    console.print()
    console.print(Rule(f"[bold]{Step.number}. {title}", align="left", style="dim"))
    for line in words:
        console.print(line, style="dim")


def show(event: Event) -> None:
    color = COLORS.get(event.type.split(".")[0], "white")
    text = message_text(event.payload)
    if isinstance(event.payload, AgentToolUse):
        text = str(event.payload.input["command"])
    kind = f"{event.type:<24}" if text else event.type
    console.print(f"  [dim]{event.seq:>3}[/]  [{color}]{kind}[/] {escape(text)}".rstrip())


def verdict(report: VerifyReport) -> str:
    return "[green]whole[/]" if report.ok else "[bold red]broken[/]"


def started(role: str, path: Path, session_id: str) -> Popen[str]:
    command = [sys.executable, str(WORKERS), role, str(path), session_id]
    return Popen(command, stdout=PIPE, text=True)


def said(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text),))


async def crash(log: SessionLog, path: Path) -> str:
    step("A session is a log", "One SQLite file. No server, no account.")
    session = await log.create(SessionCreated(agent_name="releaser", title="Release 1.4.0"))
    await log.submit(session.id, said(ASKED))
    console.print(f"  {session.id}  in  {path.name}")
    console.print(f"  a client sends: [cyan]{ASKED}[/]  (to the inbox: clients need no lease)")

    step("A worker begins, and is killed", "kill -9, after the tool call began, before its result.")
    worker = started("first", path, session.id)
    acknowledged, _ = worker.communicate(timeout=20)
    for event in await log.read(session.id):
        show(event)
    assert worker.returncode == -signal.SIGKILL
    console.print(f"  [bold red]process {worker.pid}: killed by SIGKILL[/]")
    report = await verify(log, session.id)
    console.print(
        f"  {acknowledged.strip()} events were acknowledged to it; {report.events} are there,"
        f" their chain is {verdict(report)}"
    )
    return session.id


async def wake(log: SessionLog, path: Path, session_id: str) -> None:
    step(
        "Another process wakes it; a third one watches",
        "The dead worker's lease must run out first: two writers are impossible.",
        "A person writes meanwhile. The call in doubt is looked into, not repeated.",
    )
    begun = time.perf_counter()
    screen = started("screen", path, session_id)
    worker = started("second", path, session_id)
    await log.submit(session_id, said(ADDED))
    last = (await log.session(session_id)).head.seq
    waited, _ = worker.communicate(timeout=20)
    for line in waited.splitlines():
        console.print(f"  {line}", style="yellow")
    seen, _ = screen.communicate(timeout=20)
    for line in seen.splitlines():
        event = read_line(msgspec.json.decode(line, type=EventLine))
        if event.seq > last:
            show(event)
    seconds = time.perf_counter() - begun
    console.print(f"  seen live by process {screen.pid}; {seconds:.1f} s in all, waiting included")


async def fork(log: SessionLog, session_id: str) -> None:
    step("What if? A fork", "A new session that begins with the first events. Nothing is copied.")
    forked = await log.fork(session_id, at=3, title="tests first")
    writer = await log.hold(forked.id, owner="demo")
    await writer.append(AgentMessage(content=(TextBlock(INSTEAD),)))
    await writer.release()
    for event in await log.read(forked.id):
        show(event)
    console.print("  events 1 to 3 are the first session's own, read by reference")


async def prove(log: SessionLog, path: Path, session_id: str) -> None:
    step("Nobody can rewrite it unnoticed", "Each event carries the hash of the one before it.")
    report = await verify(log, session_id)
    console.print(f"  verify: {report.events} events, {verdict(report)}")
    forged = path.with_name("forged.db")
    with closing(sqlite3.connect(path)) as original, closing(sqlite3.connect(forged)) as copy:
        original.backup(copy)
        copy.execute("update event set body = replace(body, '1.4.0', '6.6.6') where seq = 4")
        copy.commit()
    console.print("  in a copy of the file, somebody changes one event:")
    async with open_sqlite(forged) as store:
        for problem in (await verify(SessionLog(store), session_id)).problems:
            console.print(f"  verify: [bold red]event {problem.seq} {problem.what}[/]")


async def take_away(log: SessionLog, path: Path, session_id: str) -> None:
    step("Take it with you", "Lines of JSON; another store makes the very same session of them.")
    lines = [line async for line in export_lines(log, session_id)]
    target = path.with_name("release.jsonl")
    target.write_bytes(b"\n".join(lines) + b"\n")
    console.print(f"  {target.name}: {len(lines)} lines, {target.stat().st_size:,} bytes")
    console.print(f"  {lines[-1].decode()}", style="dim")


async def main() -> None:
    begun = time.perf_counter()
    console.print("[bold]Mainspring[/]: an agent's session that survives its process")
    with TemporaryDirectory(prefix="mainspring-demo-") as folder:
        path = Path(folder) / "mainspring.db"
        async with open_sqlite(path) as store:
            log = SessionLog(store)
            session_id = await crash(log, path)
            await wake(log, path, session_id)
            await fork(log, session_id)
            await prove(log, path, session_id)
            await take_away(log, path, session_id)
    console.print()
    console.print(
        f"{time.perf_counter() - begun:.1f} s. Read on: README.md, docs/log.md", style="bold"
    )


if __name__ == "__main__":
    try:
        anyio.run(main)
    except subprocess.TimeoutExpired as late:
        sys.exit(f"a process of the demo did not end: {late}")
