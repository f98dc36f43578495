"""A project that was made for Claude Code, run as it is."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.cli.upstream import Part, Upstream, call

PROJECT = Path(__file__).parent.parent / "fixtures" / "claude_project"
TURNS: tuple[tuple[Part, ...], ...] = (
    (
        call("Read", file_path="shop/prices.txt"),
        call("Read", file_path=".env"),
        call("Bash", command="sh shop/check.sh"),
    ),
    (
        call("Skill", name="release-notes", arguments=""),
        call("Task", description="review", prompt="review it", subagent_type="reviewer"),
    ),
    (
        call(
            "Edit", file_path="shop/prices.txt", old_string="pear 95", new_string="tax_table pear"
        ),
        call("Edit", file_path="shop/prices.txt", old_string="pear 95", new_string="pear 96"),
    ),
    ("All of it was tried.",),
)


def request_text(request: dict[str, Any]) -> str:
    """Everything that the model was sent, as one text."""
    return json.dumps(request["messages"], ensure_ascii=False)


def is_reviewer(request: dict[str, Any]) -> bool:
    return "You review changes." in str(request["messages"][0]["content"])


@pytest.fixture
def run_project(place: Path, mainspring: Run, upstream: Upstream) -> list[dict[str, Any]]:
    """The requests of one run in which the model tries everything."""
    shutil.copytree(PROJECT, place, dirs_exist_ok=True)
    (place / ".env").write_text("TOKEN=hidden\n", encoding="utf-8")
    turns = iter(TURNS)

    def answer(request: dict[str, Any]) -> tuple[Part, ...]:
        return ("No bugs found.",) if is_reviewer(request) else next(turns)

    upstream.otherwise = answer
    trusted = mainspring("policy", "trust", **upstream.variables)
    assert trusted.returncode == 0, trusted.stderr
    ran = mainspring("run", "try it", **upstream.variables)
    assert ran.returncode == 0, ran.stderr
    assert "All of it was tried." in ran.stdout
    return upstream.requests


def test_a_claude_code_project_runs_unchanged(run_project: list[dict[str, Any]], place: Path):
    main = [request for request in run_project if not is_reviewer(request)]
    first, last = request_text(main[0]), request_text(main[-1])
    names = {item["function"]["name"] for item in main[0]["tools"]}
    assert "prices are in cents, everywhere" in first  # CLAUDE.md
    assert (PROJECT / "docs" / "style.md").read_text(encoding="utf-8").split("\n")[0] in first
    assert "Notes for people" not in first  # a comment
    assert "Writes release notes from the history" in first  # the skill's description
    assert "Run `scripts/collect.sh`" not in first  # and not its text, before it is used
    assert {"agent", "skill", "bash", "read", "edit"} <= names
    assert "Reviews a change for bugs and style" in json.dumps(main[0]["tools"])
    assert "Cents, one product a line." in last  # a rule for the path that was read
    assert ".env is not accessible to this session" in last
    assert "hidden" not in last
    assert "Run `scripts/collect.sh`" in last
    assert "No bugs found." in last
    assert "ask alice first" in last  # the hook
    assert (place / "shop" / "prices.txt").read_text(encoding="utf-8") == "apple 120\npear 96\n"


def test_a_project_subagent_has_its_own_tools(run_project: list[dict[str, Any]]):
    [request] = [request for request in run_project if is_reviewer(request)]
    names = {item["function"]["name"] for item in request["tools"]}
    assert names == {"bash", "glob", "grep", "history_read", "history_search", "read"}
