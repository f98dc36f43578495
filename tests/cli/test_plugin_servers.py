"""The MCP server of a plugin that was installed with the command, in a session of the command."""

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.upstream import Upstream, call
from tests.mcp.peers import NOTES_SERVER


def test_the_server_of_a_plugin_runs_only_while_the_plugin_is_trusted(
    mainspring: Run, upstream: Upstream, tmp_path: Path, environ: dict[str, str]
):
    source = tmp_path / "toolbox"
    servers = {"notes": {"command": "python3", "args": ["${CLAUDE_PLUGIN_ROOT}/server.py"]}}
    for name, text in {
        ".claude-plugin/plugin.json": json.dumps({"name": "toolbox", "version": "1.0.0"}),
        ".mcp.json": json.dumps({"mcpServers": servers}),
        "server.py": NOTES_SERVER.read_text(),
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    assert mainspring("plugin", "install", str(source), "--yes").returncode == 0
    listed = mainspring("mcp", "tools", "toolbox:notes")
    assert "mcp__toolbox_notes__note" in listed.stdout, listed.stderr

    home = Path(environ["HOME"])
    (home / ".mainspring").mkdir(exist_ok=True)
    settings = {"permissions": {"allow": ["mcp__toolbox_notes"]}}
    (home / ".mainspring/settings.json").write_text(json.dumps(settings))
    upstream.says(call("mcp__toolbox_notes__note", text="hello"))
    ran = mainspring("run", "go", **upstream.variables)
    assert ran.returncode == 0, ran.stderr
    assert "note: hello" in json.dumps(upstream.requests[-1])

    (home / ".mainspring/plugins/toolbox/server.py").write_text("print('changed')")
    again = mainspring("mcp", "ls", "--no-connect")
    assert "not trusted" in again.stdout
