"""The processes of the demo: a worker that dies, one that takes over, and a screen that follows."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import aclosing
from pathlib import Path

import anyio

from mainspring.core.content import TextBlock
from mainspring.core.envelope import encode_line, payload_type
from mainspring.core.errors import LeaseHeld
from mainspring.core.events import (
    AgentMessage,
    AgentToolResult,
    AgentToolUse,
    StatusIdle,
    StatusRunning,
    StopReason,
)
from mainspring.core.facts import SessionWoken, ToolCallInDoubt, ToolCallStarted
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.writer import Writer

LEASE_SECONDS = 2.5


async def first(log: SessionLog, session_id: str) -> None:
    """Begins to work, and is killed between starting a tool call and recording its result."""
    writer = await log.hold(session_id, owner=f"worker {os.getpid()}", seconds=LEASE_SECONDS)
    await writer.fold_inbox()
    command = "make release VERSION=1.4.0"
    [_, use] = await writer.append(
        StatusRunning(), AgentToolUse(name="bash", input={"command": command})
    )
    [begun] = await writer.append(
        ToolCallStarted(tool_use_id=use.id, idempotency_key="release-1.4.0")
    )
    print(begun.seq, flush=True)  # what it was told is on disk
    os.kill(os.getpid(), signal.SIGKILL)


async def second(log: SessionLog, session_id: str) -> None:
    """Knows nothing but the session's id. All that it needs is in the log."""
    writer = await _patient(log, session_id)
    events = await log.read(session_id)
    await writer.append(SessionWoken(owner=writer.lease.owner, epoch=writer.lease.epoch, attempt=1))
    [open_call] = [event for event in events if payload_type(event.payload) == "agent.tool_use"]
    await writer.append(ToolCallInDoubt(tool_use_id=open_call.id, policy="probe"))
    found = (TextBlock("tag v1.4.0 exists: the release was made before the crash"),)
    await writer.append(AgentToolResult(tool_use_id=open_call.id, content=found))
    heard = await writer.fold_inbox()  # what people said meanwhile, between tool rounds
    text = f"Released 1.4.0, once. I read your {len(heard)} new message: staging first next time."
    await writer.append(
        AgentMessage(content=(TextBlock(text),)),
        StatusIdle(stop_reason=StopReason(type="end_turn")),
    )
    await writer.release()


async def _patient(log: SessionLog, session_id: str) -> Writer:
    while True:
        try:
            return await log.hold(session_id, owner=f"worker {os.getpid()}", seconds=LEASE_SECONDS)
        except LeaseHeld as held:
            print(f"refused: {held}", flush=True)
            await anyio.sleep(held.seconds + 0.05)


async def screen(log: SessionLog, session_id: str) -> None:
    """Prints events as they come, until the session is idle."""
    async with aclosing(log.follow(session_id)) as followed:
        async for event in followed:
            print(encode_line(event).decode(), flush=True)
            if event.type == "session.status_idle":
                break


ROLES = {"first": first, "second": second, "screen": screen}


async def main(role: str, path: Path, session_id: str) -> None:
    async with open_sqlite(path) as store:
        await ROLES[role](SessionLog(store), session_id)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]), sys.argv[3])
