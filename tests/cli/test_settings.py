"""What settings files say besides rules and hooks, in sessions of the command."""

import json
from pathlib import Path

from tests.cli.terminal import at_terminal
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.written_files import write_file

_SETTINGS = {
    "env": {"GREETING": "hello there", "DEPTH": 3, "SOME_API_KEY": "not-for-the-sandbox"},
    "outputStyle": "pirate",
    "enabledPlugins": {"powers@market": False},
    "statusLine": {"type": "command", "command": ".claude/status.sh"},
    "hooks": {
        "UserPromptSubmit": [
            {"hooks": [{"type": "command", "command": 'echo "HOOK GOT [$GREETING] $OWN_KEY"'}]}
        ]
    },
}
_STATUS = """#!/bin/sh
printf '\\033[32mSTATUS %s\\033[0m\\n' "$(grep -o '"display_name":"[a-z]*"')"
"""


def _project(place: Path) -> None:
    (place / ".claude/output-styles").mkdir(parents=True)
    (place / ".claude/settings.json").write_text(json.dumps(_SETTINGS))
    write_file(place / ".mainspring/settings.json", '{"apiKeyHelper": "cat \\u001b[2J\\nkey"}')
    (place / ".claude/status.sh").write_text(_STATUS)
    (place / ".claude/status.sh").chmod(0o755)
    style = "---\nname: Pirate\ndescription: Arr.\n---\nTALK LIKE A PIRATE\n"
    (place / ".claude/output-styles/pirate.md").write_text(style)
    plugin = place / ".mainspring/plugins/powers"
    write_file(plugin / ".claude-plugin/plugin.json", '{"name": "powers"}')
    (plugin / "skills/fly").mkdir(parents=True)
    skill = "---\nname: fly\ndescription: FLIES AWAY\n---\nFly.\n"
    (plugin / "skills/fly/SKILL.md").write_text(skill)


def test_env_output_style_plugins_and_status_line_apply_once_the_project_is_trusted(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    _project(place)
    own = Path(environ["HOME"]) / ".claude/settings.json"
    write_file(own, '{"env": {"OWN_KEY": "of-the-user"}}')

    def asked() -> tuple[str, str]:
        upstream.requests.clear()
        upstream.says(call("bash", command='echo "[$GREETING/$DEPTH/$SOME_API_KEY]"'))
        ran = mainspring("run", "go", **upstream.variables)
        assert ran.returncode == 0, ran.stderr
        return json.dumps(upstream.requests[-1]["messages"]), ran.stderr

    before, _ = asked()
    assert "[//]" in before
    assert "FLIES AWAY" in before
    for words in ("PIRATE", "HOOK GOT"):
        assert words not in before
    vouched = mainspring("policy", "trust").stdout
    for words in (
        "runs outside the sandbox: .claude/status.sh (statusLine, .claude/settings.json)",
        'runs outside the sandbox: echo "HOOK GOT [$GREETING] $OWN_KEY" (hooks, .claude/',
        "cat \N{REPLACEMENT CHARACTER}[2J\\nkey (apiKeyHelper, .mainspring/settings.json)",
        "in the sandbox: GREETING, DEPTH, SOME_API_KEY (env, .claude/settings.json)",
    ):
        assert words in vouched
    assert "not-for-the-sandbox" not in vouched
    after, told = asked()
    assert "[hello there/3/]" in after
    assert "HOOK GOT [] of-the-user" in after  # a project's variables stay in the sandbox
    assert "# Output style: Pirate\\n\\nTALK LIKE A PIRATE" in after
    assert "FLIES AWAY" not in after
    assert "env.SOME_API_KEY looks like a secret" in told
    checked = mainspring("validate").stdout
    for words in (
        "GREETING, DEPTH, SOME_API_KEY",
        "outputStyle pirate",
        "plugin powers disabled",
        "statusLine, in `mainspring chat`",
    ):
        assert words in checked
    env = {**environ, **upstream.variables}
    with at_terminal("chat", cwd=place, env=env) as terminal:
        terminal.expect("> ")
        terminal.watch('STATUS "display_name":"test"')
        (place / ".claude/status.sh").write_text("echo OTHER BYTES\n")
        terminal.type("hello\r")
        terminal.expect("all I know")
        terminal.expect("has changed since it was trusted")
        terminal.expect("> ")
        terminal.type("/exit\r")
        terminal.expect("continue:")
        assert "OTHER BYTES" not in terminal.text


def test_the_users_api_key_helper_supplies_the_key(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    own = Path(environ["HOME"]) / ".claude"
    own.mkdir()
    helper = {"apiKeyHelper": "echo asked >> ~/asked; echo key-of-the-helper"}
    (own / "settings.json").write_text(json.dumps(helper))
    where = {"ANTHROPIC_BASE_URL": upstream.url.removesuffix("/v1")}
    ran = mainspring("run", "--model", "sonnet", "go", **where)
    assert ran.returncode != 0, ran.stderr  # the server here speaks another protocol
    assert upstream.headers, ran.stderr
    assert upstream.headers[0]["x-api-key"] == "key-of-the-helper"
    assert upstream.headers[0]["authorization"] == "Bearer key-of-the-helper"
    assert (Path(environ["HOME"]) / "asked").read_text() == "asked\n"
    assert "key-of-the-helper" not in ran.stdout + ran.stderr
    for name, said in (("false", "exited with 1"), ("true", "must print the key")):
        (own / "settings.json").write_text(json.dumps({"apiKeyHelper": name}))
        failed = mainspring("run", "--model", "sonnet", "go", **where)
        assert failed.returncode != 0
        assert "apiKeyHelper: " in failed.stderr
        assert said in failed.stderr
