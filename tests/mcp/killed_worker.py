"""A worker that may be killed at any time: `-m tests.mcp.killed_worker HOME WORKSPACE SESSION`.

Its model needs no memory: which calls come next is seen from the calls before.
"""

import sys
from pathlib import Path

import anyio
from tests.session_e2e.session_setup import MODEL, Scene, at_work

from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, calls, says
from mainspring.core.model import Assistant, Request, ToolUse

CALLS = 120
AT_A_TIME = 4


def play(request: Request) -> ScriptAnswer:
    done = sum(
        isinstance(part, ToolUse)
        for message in request.messages
        if isinstance(message, Assistant)
        for part in message.content
    )
    if done >= CALLS:
        return says("done")
    tool = "count" if (done // AT_A_TIME) % 2 else "change"
    line = calls(f"mcp__counter__{tool}", n=done)
    for number in range(done + 1, done + AT_A_TIME):
        line += calls(f"mcp__counter__{tool}", n=number)
    return line


async def main(home: str, workspace: str, session_id: str) -> None:
    scene = Scene(Path(home), Path(workspace), Path(home))
    async with scene.runtime() as runtime:
        runtime.models.put(MODEL, Scripted(otherwise=play))
        session = await runtime.resume(at_work(), session_id)
        with anyio.fail_after(120):
            result = await session.run()
        assert result is None or result.ok, result


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
