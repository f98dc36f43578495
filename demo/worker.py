"""One life of the agent: take the session where its log ends and run it. Killed without notice."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from hands import tools_for

from mainspring import Agent, open_runtime


async def main(store: str, session_id: str, workspace: str) -> None:
    agent = Agent(
        name="repairer",
        instructions="Repair the project: find the failing test, mend its cause, prove it.",
        rules=["Never change a test to make it pass."],
        tools=tools_for(Path(workspace)),
    )
    async with open_runtime(store=store) as runtime:
        session = await runtime.resume(agent, session_id)
        await session.run()


anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
