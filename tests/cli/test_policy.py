"""`mainspring policy`: what holds here, what it says about a call, and what it would have said."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import anyio
import pytest
from tests.cli.conftest import opened
from tests.fork_server import Run

from mainspring.core.events import AgentToolUse, SessionCreated, ToolCallAuthorized

RULES: dict[str, object] = {
    "permissions": {"allow": ["Bash(npm test)"], "ask": ["Edit(/docs/**)"], "deny": ["Read(.env)"]}
}


@pytest.fixture
def home(tmp_path: Path, environ: dict[str, str]) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    environ["HOME"] = str(folder)
    return folder


def write(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


@pytest.fixture
def settings(home: Path) -> Path:
    """Rules of the user's own."""
    return write(home / ".mainspring/settings.json", RULES)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["Bash(npm test)"], 0, "Bash(npm test) allows it"),
        (["Bash(npm install)"], 3, "no rule allows it"),
        (["Bash(cat .env)"], 1, "the user rule Read(.env) denies it"),
        (["Bash(npm install)", "--mode", "dontAsk"], 1, "in the mode dontAsk nobody is asked"),
        (["Edit(a)", "--mode", "bypassPermissions", "--no-sandbox"], 3, "only in a sandbox"),
        (["--tool", "write", "--input", '{"file_path": ".git/config"}'], 3, "is protected"),
    ],
)
def test_check_prints_the_decision_and_its_reason(
    mainspring: Run, arguments: list[str], status: int, words: str
):
    result = mainspring("policy", "check", *arguments)
    assert (result.returncode, result.stderr) == (status, "")
    assert result.stdout.split()[0] == {0: "allow", 1: "deny", 3: "ask"}[status]
    assert words in result.stdout


@pytest.mark.usefixtures("settings")
def test_check_in_json_names_the_rule(mainspring: Run):
    result = mainspring("policy", "check", "Bash(cat .env)", "--json")
    view = json.loads(result.stdout)
    assert (view["decision"], view["gate"], view["rule"]) == ("deny", "rule", "Read(.env)")
    assert (view["tool"], view["input"], view["mode"]) == (
        "bash",
        {"command": "cat .env"},
        "default",
    )


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "name a call"),
        (["deploy(prod)"], 1, "--tool deploy --input"),
        (["--tool", "bash", "--input", "["], 1, "not a JSON object"),
        (["Bash(ls)", "--mode", "yolo"], 1, "is not a mode"),
    ],
)
def test_an_invalid_check_fails(mainspring: Run, arguments: list[str], status: int, words: str):
    result = mainspring("policy", "check", *arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert words in result.stderr


@pytest.mark.usefixtures("settings")
def test_explain_lists_rules_in_evaluation_order(mainspring: Run):
    first, head, *rows = mainspring("policy", "explain").stdout.splitlines()
    assert first.startswith("mode default: reads in the workspace are allowed")
    assert head.split() == ["ORDER", "DOES", "RULE", "SCOPE", "FILE", "MEANING"]
    assert [row.split()[:3] for row in rows] == [
        ["1", "deny", "Read(.env)"],
        ["2", "ask", "Edit(/docs/**)"],
        ["3", "allow", "Bash(npm"],
    ]
    assert "~/.mainspring/settings.json" in rows[0]
    assert "denies reading .env" in rows[0]
    view = json.loads(mainspring("policy", "explain", "--json").stdout)
    assert (view["mode"], [rule["scope"] for rule in view["rules"]]) == ("default", ["user"] * 3)


@pytest.mark.usefixtures("home")
def test_explain_says_when_there_are_no_rules(mainspring: Run):
    assert "no rules" in mainspring("policy", "explain").stdout


@pytest.mark.usefixtures("home")
def test_settings_of_a_folder_apply_once_it_is_trusted(mainspring: Run, place: Path):
    write(place / ".claude/settings.json", RULES)
    before = mainspring("policy", "check", "Bash(npm test)")
    assert before.returncode == 3
    assert "mainspring policy trust" in before.stderr
    assert mainspring("policy", "check", "Read(.env)").returncode == 1
    trusted = mainspring("policy", "trust")
    assert trusted.stdout.splitlines()[0] == f"trusted {place.resolve()}"
    assert "3 rules, hooks in 0 files" in trusted.stdout
    assert mainspring("policy", "check", "Bash(npm test)").returncode == 0
    assert mainspring("policy", "untrust").returncode == 0
    assert mainspring("policy", "check", "Bash(npm test)").returncode == 3
    assert mainspring("policy", "untrust", ".").returncode == 1
    assert "no such folder" in mainspring("policy", "trust", "nowhere").stderr


def test_unreadable_settings_are_reported_with_file_and_rule(mainspring: Run, home: Path):
    file = home / ".mainspring/settings.json"
    write(file, {"permissions": {"deny": ["Read([a)"]}})
    result = mainspring("policy", "explain")
    assert result.returncode == 1
    assert str(file) in result.stderr
    assert "Read([a)" in result.stderr


@pytest.fixture
def past(store: Path) -> str:
    """A session with three calls, of which one was asked about and allowed."""
    return anyio.run(_write_past, store)


async def _write_past(store: Path) -> str:
    async with opened(store) as log:
        session = await log.create(SessionCreated(agent_name="fixer", title="Release"))
        writer = await log.hold(session.id, owner="worker")
        for command, decision in (("npm test", "ask"), ("git push", "allow"), ("ls", "allow")):
            [use] = await writer.append(AgentToolUse(name="bash", input={"command": command}))
            decided = ToolCallAuthorized(
                tool_use_id=use.id, decision="ask" if decision == "ask" else "allow", gate="rule"
            )
            await writer.append(decided)
        await writer.release()
        return session.id


def views(result: CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("home")
def test_other_rules_are_tested_against_past_sessions(mainspring: Run, place: Path, past: str):
    rules = {"permissions": {"allow": ["Bash(npm test)"], "deny": ["Bash(git push *)"]}}
    write(place / "rules.json", rules)
    result = mainspring("policy", "test", "rules.json", "--over", past[-8:])
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ask -> allow  Bash(npm test)")
    assert lines[2].startswith("allow -> deny  Bash(git push)")
    assert lines[4:] == [
        "3 calls, 2 decided differently",
        "  allow: 2 -> 2",
        "  deny: 0 -> 1",
        "  ask: 1 -> 0",
    ]
    found = views(mainspring("policy", "test", "rules.json", "--all", "--json"))
    assert [(view["was"], view["now"], view["rule"]) for view in found] == [
        ("ask", "allow", "Bash(npm test)"),
        ("allow", "deny", "Bash(git push *)"),
        ("allow", "allow", None),
    ]
    assert {view["session_id"] for view in found} == {past}


@pytest.mark.usefixtures("home")
def test_policy_test_needs_either_a_session_or_all(mainspring: Run, place: Path, past: str):
    write(place / "rules.json", RULES)
    assert mainspring("policy", "test", "rules.json").returncode == 2
    assert mainspring("policy", "test", "rules.json", "--over", past, "--all").returncode == 2
    assert "no such file" in mainspring("policy", "test", "none.json", "--all").stderr
