"""A worker that waits to be killed: `-m tests.mcp.asked_worker HOME WORKSPACE SESSION`.

It runs a session until a person is asked, and says so.
"""

import sys
from pathlib import Path

import anyio
from tests.session_e2e.session_setup import MODEL, Scene, at_work

from mainspring.capabilities.providers.scripted import Scripted, calls


async def main(home: str, workspace: str, session_id: str) -> None:
    scene = Scene(Path(home), Path(workspace), Path(home))
    async with scene.runtime() as runtime:
        runtime.models.put(MODEL, Scripted(calls("mcp__air__tour")))
        session = await runtime.resume(at_work(), session_id)
        result = await session.run()
        assert result is not None
        assert result.reason == "requires_action"
        sys.stdout.write("waits\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
