"""`mainspring validate`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.fork_server import Run
from tests.written_files import write_file

from mainspring.config import Settings, read_settings
from mainspring.edges.cli.agent_files import validate as validate_command
from mainspring.wiring.agent_selection import validate
from mainspring.wiring.settings_files import trust

CLAUDE_PROJECT = Path(__file__).parents[1] / "fixtures/claude_project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CLAUDE_PROJECT, tmp_path / "shop"))


@pytest.fixture
def settings(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return read_settings(environ={"GITHUB_TOKEN": "hush-hush-hush"}, folder=project)


async def run_validate(
    settings: Settings, capsys: pytest.CaptureFixture[str], *, strict: bool = False
) -> tuple[int, dict[str, Any]]:
    status = await validate_command.validate(settings, folder=None, strict=strict, json=True)
    return status, json.loads(capsys.readouterr().out)


def part(report: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [item for item in report["parts"] if item["name"] == name]
    return found


def not_honoured(report: dict[str, Any], name: str) -> dict[str, str]:
    return {item["what"]: item["why"] for item in part(report, name)["not_honoured"]}


async def test_validate_lists_the_supported_and_unsupported_parts_of_a_claude_code_project(
    settings: Settings, capsys: pytest.CaptureFixture[str]
):
    status, report = await run_validate(settings, capsys)
    assert (status, report["ok"], report["errors"]) == (0, True, 0)
    told = part(report, "instructions")["honoured"]
    assert told[:3] == [
        "CLAUDE.md (project)",
        "docs/style.md (project)",
        "docs/testing.md (project)",
    ]
    assert ".claude/rules/prices.md: for shop/**/*.txt" in told
    assert [item.partition(":")[0] for item in part(report, "subagents")["honoured"][:2]] == [
        "reviewer",
        "test-runner",
    ]
    held = part(report, "permissions and sandbox")["honoured"]
    assert held == [
        ".claude/settings.json: ask Bash(git push:*)",
        ".claude/settings.json: deny Read(.env), Read(./secrets/**), WebFetch",
    ]
    rest = not_honoured(report, "permissions and sandbox")
    assert rest[".claude/settings.json: model"] == "agent.yaml has `model`"
    assert "not trusted" in rest[".claude/settings.json: mode acceptEdits"]
    assert "not trusted" in next(iter(not_honoured(report, "hooks").values()))
    assert "github (http, .mcp.json)" in not_honoured(report, "MCP servers")
    assert part(report, "output styles")["honoured"]
    assert "hush" not in json.dumps(report)


async def test_hooks_and_permissions_of_a_trusted_folder_are_listed_as_supported(
    settings: Settings, project: Path, capsys: pytest.CaptureFixture[str]
):
    trust(project, home=Path(settings.home))
    _, report = await run_validate(settings, capsys)
    held = part(report, "permissions and sandbox")["honoured"]
    assert ".claude/settings.json: mode acceptEdits" in held
    [guard, notify] = part(report, "hooks")["honoured"]
    assert guard.startswith(".claude/settings.json: PreToolUse Edit|Write: ")
    assert "notify-send" in notify


async def test_every_problem_is_reported_with_its_position_and_fix(
    settings: Settings, project: Path, capsys: pytest.CaptureFixture[str]
):
    write_file(project / "agent.yaml", "name: shop\ntools: [raed]\nlimits:\n  max_turns: many\n")
    write_file(project / "hooks.json", '{"hooks": {\n  "PreTolUse": []\n}}')
    wrong = '{\n "permissions": {\n  "deny": [\n   "Read("\n ]},\n "sandbox": {"limits": 3}\n}'
    write_file(project / ".claude/settings.json", wrong)
    status = await validate_command.validate(settings, folder=None, strict=False, json=False)
    shown = capsys.readouterr().out
    assert status == 1
    lines = shown.splitlines()
    assert "agent.yaml:4: error: max_turns must be a whole number, not 'many'" in lines
    assert (
        ".claude/settings.json:4: error: permissions.deny: 'Read(': the closing parenthesis"
        in shown
    )
    assert ".claude/settings.json:6: error: the settings of the sandbox are wrong" in shown
    assert "hooks.json:2: warning: hooks.PreTolUse: PreTolUse is not a known event" in shown
    assert "agent.yaml:2: warning: there is no tool raed" in lines
    assert "    fix: did you mean read?" in lines
    assert lines[-1].startswith("3 errors, ")


async def test_unknown_models_and_tools_are_reported(
    settings: Settings, project: Path, capsys: pytest.CaptureFixture[str]
):
    write_file(project / "agent.yaml", "name: shop\nmodel: opuss\n")
    head = "description: Reads.\ntools: Read, WebSerch, mcp__x, Agent(explore)\nmodel: sonet"
    write_file(project / "agents/reader.md", f"---\n{head}\n---\nRead.")
    write_file(project / "agents/other.md", "---\ndescription: Acts.\nmodel: inherit\n---\nAct.")
    _, report = await run_validate(settings, capsys)
    [wrong] = part(report, "agent")["findings"]
    assert (wrong["level"], wrong["line"], wrong["what"]) == ("error", 2, "unknown model 'opuss'")
    assert wrong["fix"].startswith("did you mean opus?")
    why = not_honoured(report, "subagents")
    assert why["reader: tool WebSerch"] == "there is none here; did you mean WebSearch?"
    assert why["reader: model sonet"].startswith("its parent's model is used: unknown model")
    assert not [item for item in why if item.startswith("other") or "mcp__" in item]


async def test_untrusted_plugin_hooks_are_reported_with_the_command_that_trusts_them(
    settings: Settings, project: Path, capsys: pytest.CaptureFixture[str]
):
    root = project / ".mainspring/plugins/kit"
    write_file(root / "skills/lint/SKILL.md", "---\ndescription: Lints.\n---\nLint.")
    write_file(root / "skills/mute/SKILL.md", "---\nname: mute\n---\nIt has no description.")
    hook = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}
    write_file(root / "hooks/hooks.json", json.dumps(hook))
    _, report = await run_validate(settings, capsys)
    assert part(report, "plugins")["honoured"] == ["kit: 1 skill, 1 hook"]
    assert f"skill scan {root} --trust" in not_honoured(report, "plugins")["kit: hooks"]


async def test_strict_turns_warnings_into_failures(
    settings: Settings, project: Path, capsys: pytest.CaptureFixture[str]
):
    write_file(project / "agent.yaml", "colour: blue\n")
    assert (await run_validate(settings, capsys))[0] == 0
    status, report = await run_validate(settings, capsys, strict=True)
    assert (status, report["ok"]) == (1, False)


async def test_permissions_granted_by_the_manifest_need_trust_and_denials_do_not(
    settings: Settings, project: Path, capsys: pytest.CaptureFixture[str]
):
    text = "permissions: {mode: plan, allow: [Read], deny: [WebFetch]}\nenvironment: {image: x}\n"
    write_file(project / "agent.yaml", text)
    _, report = await run_validate(settings, capsys)
    held = part(report, "permissions and sandbox")["honoured"]
    assert {"agent.yaml: deny WebFetch", "agent.yaml: mode plan"} <= set(held)
    assert {"agent.yaml: allow Read", "agent.yaml: environment"} <= not_honoured(
        report, "permissions and sandbox"
    ).keys()


def test_malformed_files_do_not_abort_validation(settings: Settings, project: Path):
    write_file(
        project / "agent.yaml", "permissions: {deny: ['(']}\nenvironment: {networking: {type: x}}"
    )
    write_file(project / ".claude/settings.json", "[")
    write_file(project / ".mcp.json", "{")
    write_file(project / "hooks.json", "{}")
    report = validate(settings)
    assert {"agent.yaml", ".claude/settings.json", ".mcp.json"} == {
        problem.file for problem in report.problems if problem.level == "error"
    }


def test_the_validate_command_prints_problems_and_exits_with_status_1(mainspring: Run, place: Path):
    write_file(place / "AGENTS.md", "Be brief.")
    write_file(place / "agent.yaml", "limits: {max_turns: x}")
    result = mainspring("validate", ".")
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith("agent.yaml:1: error: max_turns must be a whole number")
    assert "✓ AGENTS.md (project)" in result.stdout


async def test_long_or_contradictory_instructions_get_a_warning(
    settings: Settings, project: Path, capsys: pytest.CaptureFixture[str]
):
    write_file(
        project / "AGENTS.md", "# Style\n\n- Always use tabs.\n- Never push.\n" + "word " * 9_000
    )
    write_file(project / ".claude/rules/style.md", "Be brief.\n\n* **Never** use the tabs!\n")
    _, report = await run_validate(settings, capsys)
    whats = [item["what"] for item in part(report, "instructions")["findings"]]
    assert "contradicts AGENTS.md:3" in whats
    assert [what for what in whats if "characters, all of them in every request" in what]


def test_a_warning_about_the_folder_is_shown_once(mainspring: Run, place: Path):
    write_file(place / "CLAUDE.md", "Read @docs/missing.md first.")
    first, second = (mainspring("run", "hello", "--model", "scripted:demo") for _ in range(2))
    assert "@docs/missing.md is not a file that can be imported" in first.stderr
    assert "missing.md" not in second.stderr
    write_file(place / "CLAUDE.md", "Read @docs/other.md first.")
    assert "other.md" in mainspring("run", "hello", "--model", "scripted:demo").stderr


def test_an_unknown_model_has_no_tick_and_an_empty_folder_is_no_agent(
    mainspring: Run, place: Path
) -> None:
    empty = mainspring("validate")
    assert "there is no agent in this folder" in empty.stdout
    assert mainspring("validate", "--strict").returncode == 1
    (place / "agent.yaml").write_text("name: clerk\nmodel: nope:bar\n")
    unknown = mainspring("validate")
    assert (unknown.returncode, "✗ model nope:bar" in unknown.stdout) == (1, True)
    assert "✓ model" not in unknown.stdout
