"""Hooks of a plugin that was installed with the command, in a session of the command."""

import json
from pathlib import Path

from tests.cli.upstream import Upstream
from tests.fork_server import Run

_START = """#!/usr/bin/env bash
set -euo pipefail
ROOT="$(cd "$(dirname "$0")/.." && pwd)"
echo once >> "${PLUGIN_DATA}/runs"
words=$(cat "${ROOT}/skills/using/SKILL.md" "${CLAUDE_PLUGIN_ROOT}/more/words.txt")
if [ -n "${CLAUDE_PLUGIN_ROOT:-}" ] && [ "$PLUGIN_ROOT" = "$CLAUDE_PLUGIN_ROOT" ]; then
  printf '{"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "%s"}}' \\
    "$(bash "$CLAUDE_PLUGIN_ROOT/lib/escape.sh" "$words")"
else
  printf '{"additionalContext": "lost"}'
fi
"""
_WRAPPER = """SCRIPT_DIR="$(cd "$(dirname "$0")" && pwd)"
exec bash "${SCRIPT_DIR}/$1"
"""


def _plugin(root: Path) -> Path:
    """In the shape of the most used one: a wrapper that runs a script without a suffix, which
    reads a skill of the plugin."""
    start = {"type": "command", "command": '"${CLAUDE_PLUGIN_ROOT}/hooks/run-hook.cmd" start'}
    misplaced = {"type": "command", "command": """echo '{"additionalContext": "top level"}'"""}
    plain = {"type": "command", "command": "echo formatted"}
    hooks = {
        "SessionStart": [
            {"matcher": "startup|clear|compact", "hooks": [start | {"shell": "bash"}]},
            {"hooks": [misplaced]},
        ],
        "Stop": [{"hooks": [plain]}],
    }
    files = {
        ".claude-plugin/plugin.json": json.dumps({"name": "powers", "version": "1.0.0"}),
        "hooks/hooks.json": json.dumps({"hooks": hooks}),
        "hooks/run-hook.cmd": _WRAPPER,
        "hooks/start": _START,
        "lib/escape.sh": """printf '%s' "$1" | tr '\\n"' '  '\n""",
        "more/words.txt": "MORE WORDS\n",
        "skills/using/SKILL.md": "---\nname: using\ndescription: How.\n---\nUSE YOUR POWERS\n",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / "hooks/run-hook.cmd").chmod(0o755)
    return root


def test_a_plugin_hook_finds_its_plugin_and_adds_to_the_context(
    mainspring: Run, upstream: Upstream, tmp_path: Path, environ: dict[str, str]
):
    source = _plugin(tmp_path / "powers")
    done = mainspring("plugin", "install", str(source), "--yes")
    assert done.returncode == 0, done.stderr
    ran = mainspring("run", "hello", **upstream.variables)
    assert ran.returncode == 0, ran.stderr
    told = json.dumps(upstream.requests[0])
    assert "USE YOUR POWERS" in told
    assert "MORE WORDS" in told
    home = Path(environ["HOME"])
    assert (home / ".mainspring/plugin-data/powers/runs").read_text() == "once\n"
    assert "additionalContext: not known, so it has no effect; for the model" in ran.stderr
    assert ran.stderr.count("text on stdout has no effect on Stop") == 1
    root = home / ".mainspring/plugins/powers"
    upstream.says({"name": "bash", "arguments": json.dumps({"command": "true"})})
    (root / "lib/escape.sh").write_text("echo OTHER BYTES\n")
    assert "OTHER BYTES" not in mainspring("run", "again", **upstream.variables).stderr
    assert "USE YOUR POWERS" not in json.dumps(upstream.requests[1])
