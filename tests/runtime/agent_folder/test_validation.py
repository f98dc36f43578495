"""What becomes of each part of a folder."""

from pathlib import Path

from tests.written_files import write_file

from mainspring.runtime.agent_folder.agent_loader import read_agent
from mainspring.runtime.agent_folder.mcp_file import read_mcp
from mainspring.runtime.agent_folder.plugins import installed_plugins
from mainspring.runtime.agent_folder.validation import FolderReport, PartReport, check_folder
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import Scopes


def parts(folder: Path) -> dict[str, PartReport]:
    plugins = installed_plugins(folder, None)
    scopes = Scopes(folder=folder, plugins=plugins.places)
    servers = read_mcp(scopes, {}, plugins=plugins.servers)
    found = read_agent(scopes, allows_errors=True)
    checked = check_folder(
        folder, found, plugins=plugins, servers=servers, is_pinned=lambda _: None
    )
    return {part.name: part for part in checked}


def ignored_parts(part: PartReport) -> dict[str, str]:
    return {item.what: item.why for item in part.ignored}


def test_a_schedule_and_an_outcome_are_reported_with_their_effect(tmp_path: Path):
    write_file(
        tmp_path / "agent.yaml", "schedule: {cron: '0 9 * * *'}\noutcome: {description: Green}\n"
    )
    planned = parts(tmp_path)["schedule, outcome, slo and grade"]
    assert ignored_parts(planned).keys() == {"outcome Green"}
    assert planned.supported[0].startswith("schedule 0 9 * * * UTC: runs in `mainspring serve`")
    assert "no `rubric`" in ignored_parts(planned)["outcome Green"]
    write_file(tmp_path / "agent.yaml", "outcome: {rubric: Tests pass.}\n")
    [graded] = parts(tmp_path)["schedule, outcome, slo and grade"].supported
    assert graded.startswith("outcome Tests pass.: new sessions")


def test_files_of_other_frameworks_are_reported_as_not_read(tmp_path: Path):
    for name in ("agent.json", "tools.json", "root_agent.yaml"):
        write_file(tmp_path / name, "{}")
    write_file(tmp_path / ".claude/output-styles/a.md", "x")
    write_file(tmp_path / ".claude/mystery.txt", "x")
    write_file(tmp_path / ".claude/settings.json", "{}")
    others = ignored_parts(parts(tmp_path)["other files"])
    assert others["root_agent.yaml"].startswith("not read: ADK's")
    assert others[".claude/mystery.txt"] == "nothing reads it"
    assert ".claude/settings.json" not in others
    assert len(others) == 4
    assert parts(tmp_path)["output styles"].supported == ("a: ",)


def test_servers_are_named_without_possible_secrets(tmp_path: Path):
    write_file(
        tmp_path / ".mcp.json",
        '{"mcpServers": {"a": {"url": "https://x.test/?key=hush", "headers": {"A": "hush"}}}}',
    )
    part = parts(tmp_path)["MCP servers"]
    assert part.supported == ("a (http, .mcp.json)",)
    assert "hush" not in str(part)


def test_a_broken_skill_is_an_error_and_the_others_are_supported(tmp_path: Path):
    write_file(tmp_path / "skills/good/SKILL.md", "---\nname: good\ndescription: d\n---\nx")
    write_file(tmp_path / "skills/bad/SKILL.md", "")
    write_file(tmp_path / "commands/go.md", "Go.")
    found = parts(tmp_path)
    assert (found["skills"].supported, found["commands"].supported) == (("good: d",), ("go: Go.",))
    assert [finding.file for finding in found["skills"].findings] == ["skills/bad/SKILL.md"]


def test_errors_come_before_warnings_and_notes_are_not_problems():
    findings = tuple(Finding(level=s, file="f", what=s) for s in ("note", "warning", "error"))
    report = FolderReport(parts=(PartReport(name="a", findings=findings),))
    assert [problem.what for problem in report.problems] == ["error", "warning"]
    assert (report.errors, report.warnings) == (1, 1)
