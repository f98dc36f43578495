"""Types of subagents as they occur in the wild: each fixture says what must come out."""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
from tests.row_checks import for_each

from mainspring.runtime.agent_folder.subagent_files import (
    SubagentDiscovery,
    discover_subagents,
    read_subagent,
)
from mainspring.runtime.definition_files.scopes import PartLocation, Scopes
from mainspring.runtime.subagent import Subagent
from mainspring.runtime.subagents.thread_factory import may_use_tool

WILD = Path(__file__).parents[2] / "fixtures/wild"
AGENTS = PartLocation(WILD / "agents", "project")
USUAL = "Reviews code. Use after changes."

# fixture -> (what differs from a plain one, findings: (level, line, part of what is said))
READ: dict[str, tuple[dict[str, Any], list[tuple[str, int | None, str]]]] = {
    "plain-agent": ({}, []),
    "tools-commas": ({"tools": ("Read", "Grep", "Glob", "Bash"), "model": "sonnet"}, []),
    "tools-list": ({"tools": ("Read", "Grep"), "model": "opus", "color": "blue"}, []),
    "tools-lines": ({"tools": ("Read", "mcp__github"), "model": "haiku"}, []),
    "tools-star": ({}, []),
    "tools-none": ({"tools": ()}, []),
    "tools-null": ({}, []),
    "tools-allowed": ({"tools": ("Read", "Bash")}, []),
    "tools-mapping": (
        {"tools": (), "extra": {"tools": {"write": False, "bash": True}}},
        [("warning", 4, "must be a list of texts"), ("warning", 4, "it gets no tools")],
    ),
    "calls-agents": ({"tools": ("Agent(worker, researcher)", "Read")}, []),
    "calls-tasks": (
        {"tools": ("Read", "Agent(worker, researcher)"), "disallowed_tools": ("Agent", "mcp__*")},
        [],
    ),
    "inherits": ({}, []),
    "model-id": ({"model": "claude-fable-5"}, []),
    "everything": (
        {
            "disallowed_tools": ("Write", "mcp__srv"),
            "permission_mode": "acceptEdits",
            "max_turns": 12,
            "max_cost_usd": "0.5",
            "skills": ("pdf", "plugin:docx"),
            "mcp_servers": ("github", {"local": {"command": "serve"}}),
            "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "check"}]}]},
            "memory": "project",
            "is_background": True,
            "effort": "xhigh",
            "isolation": "worktree",
            "color": "cyan",
            "initial_prompt": "Look around first.",
        },
        [],
    ),
    "servers-by-name": (
        {"mcp_servers": ({"github": {"type": "http", "url": "https://example.com/mcp"}},)},
        [],
    ),
    "skills-text": ({"skills": ("pdf", "docx")}, []),
    "unknown-keys": (
        {"extra": {"temperature": 0.2, "kind": "local"}},
        [("warning", 4, "is unknown: it is kept"), ("warning", 5, "is unknown: it is kept")],
    ),
    "wrong-kinds": (
        {
            "extra": {
                "permissionMode": "anything",
                "maxTurns": "many",
                "memory": "forever",
                "isolation": "moon",
                "maxCostUsd": "lots",
                "effort": "some",
                "hooks": [],
            }
        },
        [
            ("warning", 9, "must be one of none, low"),
            ("warning", 4, "is not a mode"),
            ("warning", 5, "must be a number above 0"),
            ("warning", 8, "must be an amount above 0"),
            ("warning", 10, "must be names with values"),
            ("warning", 6, "must be one of user"),
            ("warning", 7, "must be one of worktree"),
        ],
    ),
    "broken-yaml": (
        {
            "description": "Use this agent when: code changed. Examples: <example>Context: The "
            'user wrote code. user: "Please check" assistant: "I\'ll check"</example>',
            "model": "sonnet",
        },
        [("warning", 3, "is not YAML and is read as plain text")],
    ),
    "colon": ({"name": "team:colon"}, [("warning", 2, "has a colon")]),
    "nameless": ({}, [("warning", None, "has no name: named nameless")]),
    "undescribed": ({"description": "You review code."}, [("warning", None, "has no description")]),
}
ELSEWHERE = {"README", "explore", "nested"}


def discover_in(folder: Path) -> SubagentDiscovery:
    return discover_subagents(Scopes(folder=folder))


def test_every_fixture_is_listed_in_a_table():
    assert {path.stem for path in AGENTS.path.rglob("*.md")} == {*READ, *ELSEWHERE}


@for_each("name", READ)
def test_subagent_files_as_published_are_read(name: str):
    expected, findings = READ[name]
    file = AGENTS.path / f"{name}.md"
    subagent, said = read_subagent(file, AGENTS, f"{name}.md")
    plain: dict[str, Any] = {
        "name": name,
        "description": USUAL,
        "prompt": "You review code.",
        "scope": "project",
        "file": str(file),
        "hooks": {},
        "extra": {},
    }
    assert msgspec.to_builtins(subagent) == {**plain, **expected}
    assert [(item.level, item.line) for item in said] == [finding[:2] for finding in findings]
    assert all(what in each.what for each, (_, _, what) in zip(said, findings, strict=True))


def test_subagents_are_found_in_nested_folders_and_invalid_files_are_reported(tmp_path: Path):
    shutil.copytree(AGENTS.path, tmp_path / ".claude/agents")
    what = discover_in(tmp_path)
    names = [subagent.name for subagent in what.subagents]
    assert names == sorted(names)
    assert {"nested", "explore", "team:colon"} <= {*names}
    assert len(names) == len(READ) + len(ELSEWHERE) - 1
    assert [str(finding) for finding in what.findings if "README" in finding.file] == [
        ".claude/agents/README.md: has no readable frontmatter, so it is not a subagent: skipped"
    ]


def test_of_two_subagents_with_one_name_the_wider_scope_wins(tmp_path: Path):
    for scope in ("home", "project"):
        (tmp_path / scope / ".claude/agents").mkdir(parents=True)
        text = f"---\nname: reviewer\ndescription: of the {scope}\n---\nYou review.\n"
        (tmp_path / scope / ".claude/agents/reviewer.md").write_text(text)
    what = discover_subagents(Scopes(folder=tmp_path / "project", home=tmp_path / "home"))
    assert [(s.description, s.scope) for s in what.subagents] == [("of the home", "user")]
    assert [str(finding) for finding in what.findings] == [
        ".claude/agents/reviewer.md: is not used: "
        "~/.claude/agents/reviewer.md is also called reviewer and takes precedence"
    ]


def test_subagents_of_a_plugin_are_prefixed_with_its_name(tmp_path: Path):
    root = tmp_path / "acme"
    shutil.copytree(AGENTS.path / "deeper", root / "agents")
    plugin = PartLocation(root, "user", "acme", root)
    what = discover_subagents(Scopes(folder=tmp_path / "project", plugins=(plugin,)))
    assert [subagent.name for subagent in what.subagents] == ["acme:nested"]


def test_subagents_of_a_deep_agent_are_read_from_folders(tmp_path: Path):
    shutil.copytree(WILD / "deep_agents/subagents", tmp_path / "subagents")
    what = discover_in(tmp_path)
    assert [(s.name, s.description, s.prompt, s.model) for s in what.subagents] == [
        ("researcher", "Looks things up", "You look things up.", "anthropic:claude-sonnet-4-6")
    ]
    assert what.subagents[0].extra == {"runtime": {"a": 1}}
    assert [(finding.level, finding.file.split("/")[1]) for finding in what.findings] == [
        ("error", "broken"),
        ("note", "researcher"),
        ("warning", "researcher"),
        ("error", "silent"),
    ]


def test_symlinked_instructions_of_a_deep_agent_are_refused(tmp_path: Path):
    (tmp_path / "secret").write_text("the secret")
    folder = tmp_path / "project/subagents/curious"
    folder.mkdir(parents=True)
    (folder / "agent.json").write_text("{}")
    os.symlink(tmp_path / "secret", folder / "AGENTS.md")
    what = discover_in(tmp_path / "project")
    assert (what.subagents, [finding.level for finding in what.findings]) == ((), ["error"])


def test_a_pattern_for_all_mcp_tools_matches_no_other_tool():
    allowed = Subagent(name="a", description="", prompt="", tools=("mcp__*",))
    denied = Subagent(name="b", description="", prompt="", disallowed_tools=("mcp__*",))
    tools = ("bash", "mcp__notes__write")
    assert [may_use_tool(allowed, tool) for tool in tools] == [False, True]
    assert [may_use_tool(denied, tool) for tool in tools] == [True, False]
