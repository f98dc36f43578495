"""Options of commands about MCP servers. No server is connected to."""

from tests.cli.scenes.scene import JSON, Change, Json, Scene, Scenes, hides, shows

_USER: Change = shows("--scope user", "file home/.mainspring/mcp.json")
SCENES: Scenes = {
    "mcp add": Scene(
        place="empty",
        base="notes -- python3 server.py",
        options={
            "--json": JSON,
            "--env": shows("--env NAME=special", "special"),
            "--header": shows("--header 'x-name: special'", "special", "notes http://127.0.0.1:9"),
            "--scope": _USER,
        },
    ),
    "mcp add-json": Scene(
        place="empty",
        base="""notes '{"command": "x"}'""",
        options={"--json": JSON, "--scope": _USER},
    ),
    "mcp ls": Scene(
        place="servers",
        base="--no-connect",
        options={
            "--json": JSON,
            "--no-connect": hides("--no-connect", "failed", ""),
        },
    ),
    "mcp remove": Scene(
        place="servers",
        base="off",
        options={"--json": JSON, "--scope": shows("--scope user", "exit 1")},
    ),
    "mcp disable": Scene(
        place="servers",
        base="off",
        options={"--json": JSON, "--scope": shows("--scope user", "exit 1")},
    ),
    "mcp enable": Scene(
        place="servers",
        base="off",
        options={"--json": JSON, "--scope": shows("--scope user", "exit 1")},
    ),
    "mcp accept": Scene(place="servers", base="off", options={"--json": JSON}),
    "mcp import": Scene(
        place="servers",
        base="cursor",
        options={"--json": Json(), "--scope": shows("--scope project", "project/.mcp.json")},
    ),
    "mcp test": Scene(place="servers", base="off", options={"--json": JSON}),
}
