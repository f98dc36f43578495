"""The instructions of an agent's folder, as `mainspring validate` and a session get them."""

import sys
from pathlib import Path, PurePosixPath

import pytest
from tests.written_files import write_file

from mainspring.runtime.agent_folder.folder_instructions import places_of, read_instructions
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes


def test_all_scopes_of_a_folder_are_read_and_issues_become_findings(tmp_path: Path):
    folder, home, managed = tmp_path / "agent", tmp_path / "home", tmp_path / "etc"
    write_file(managed / "AGENTS.md", "law")
    write_file(home / ".claude/CLAUDE.md", "mine")
    write_file(folder / "SOUL.md", "kind")
    write_file(folder / "MEMORY.md", "old")
    write_file(folder / "CLAUDE.md", "ours\n\n@gone.md")
    write_file(folder / "rules/py.md", "---\npaths: ['*.py']\n---\ntyped")
    told = read_instructions(Scopes(folder=folder, home=home, managed=managed))
    assert [section.text for section in told.instructions.sections] == [
        "law",
        "mine",
        "kind",
        "ours\n\n@gone.md",
    ]
    assert [rule.source for rule in told.instructions.scoped] == ["rules/py.md"]
    assert [(finding.level, finding.file, finding.line) for finding in told.findings] == [
        ("note", "MEMORY.md", None),
        ("warning", "CLAUDE.md", 3),
    ]
    assert isinstance(told.findings[1], Finding)
    assert str(told.findings[1]).startswith("CLAUDE.md:3: @gone.md is not a file that can be")


def test_a_folder_in_a_larger_project_has_only_its_own_instructions(tmp_path: Path):
    write_file(tmp_path / "AGENTS.md", "all")
    write_file(tmp_path / "agents/ada/AGENTS.md", "ada")
    instructions = read_instructions(Scopes(folder=tmp_path / "agents/ada")).instructions
    assert [section.text for section in instructions.sections] == ["ada"]


@pytest.mark.parametrize(
    ("platform", "claude"),
    [
        ("linux", ["/etc/claude-code"]),
        ("darwin", ["/Library/Application Support/ClaudeCode"]),
        ("win32", []),
    ],
)
def test_managed_instructions_for_claude_code_are_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, claude: list[str]
):
    monkeypatch.setattr(sys, "platform", platform)
    found = places_of(Scopes(folder=tmp_path, managed=MANAGED)).managed
    assert found == tuple(PurePosixPath(item) for item in (*claude, MANAGED))
    elsewhere = places_of(Scopes(folder=tmp_path, managed=tmp_path / "etc"))
    assert elsewhere.managed == (PurePosixPath(tmp_path / "etc"),)
    assert places_of(Scopes(folder=tmp_path)).managed == ()
