"""A process with a session whose MCP server creates files; the test kills it. It prints a line when
the server has been called."""

import sys
from pathlib import Path

import anyio
from tests.session_e2e.session_setup import Scene, begin

from mainspring.capabilities.providers.scripted import calls


async def main() -> None:
    home, workspace = map(Path, sys.argv[1:])
    scene = Scene(home=home, workspace=workspace, outside=workspace)
    async with scene.runtime("bypassPermissions") as runtime:
        play = await begin(runtime, calls("mcp__planting__note"))
        await play.run()
        sys.stdout.write("called\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main)
