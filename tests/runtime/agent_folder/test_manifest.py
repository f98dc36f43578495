"""`agent.yaml`: what it says, and what is wrong with it, line by line."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.core.errors import InvalidInput
from mainspring.harness.limits import Limits
from mainspring.runtime.agent_folder.manifest import (
    AgentManifest,
    ManifestOutcome,
    ManifestSchedule,
    Permissions,
    SubagentRules,
    read_manifest,
    settings_in,
)

FULL = """\
name: fixer
description: Mends tests.
model: sonnet, gpt
effort: high
instructions: |
  Be brief.
rules: [Never push.]
tools: [Read, grep]
limits: {max_turns: 9, max_seconds: 1.5, max_cost_usd: 2.50}
permissions:
  mode: plan
  allow: ["Bash(ls *)"]
  deny: ["Read(.env)"]
environment:
  networking: {type: limited, allowed_hosts: [example.com]}
  limits: {processes: 50}
agents: [explore, reviewer]
coordinator: true
schedule: {cron: "0 9 * * 1-5", timezone: Europe/Vienna, message: Look around.}
outcome: {description: Tests pass, rubric: All green.}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.yaml"


def read_text(file: Path, text: str) -> AgentManifest:
    file.write_text(text, encoding="utf-8")
    return read_manifest(file)


def list_findings(file: Path, text: str) -> list[str]:
    return [f"{finding.level} {finding}" for finding in read_text(file, text).findings]


def test_every_field_is_read(file: Path):
    made = read_text(file, FULL)
    assert made.findings == ()
    assert (made.name, made.description, made.model) == ("fixer", "Mends tests.", "sonnet, gpt")
    assert (made.effort, made.instructions, made.rules) == ("high", "Be brief.", ("Never push.",))
    assert made.tools == ("read", "grep")
    assert made.limits == Limits(max_turns=9, max_seconds=1.5, max_cost_usd=Decimal("2.50"))
    assert made.permissions == Permissions(mode="plan", allow=("Bash(ls *)",), deny=("Read(.env)",))
    assert made.subagents == SubagentRules(names=("explore", "reviewer"))
    assert made.is_coordinator
    assert made.schedule == ManifestSchedule(
        cron="0 9 * * 1-5", timezone="Europe/Vienna", message="Look around."
    )
    assert made.outcome == ManifestOutcome(description="Tests pass", rubric="All green.")
    assert made.lines["permissions"] == 10


def test_permissions_and_environment_have_the_shape_of_a_settings_file(file: Path):
    file.write_text(FULL)
    assert settings_in(file) == {
        "permissions": {
            "allow": ("Bash(ls *)",),
            "ask": (),
            "deny": ("Read(.env)",),
            "defaultMode": "plan",
        },
        "sandbox": {
            "networking": {"type": "limited", "allowed_hosts": ["example.com"]},
            "limits": {"processes": 50},
        },
        "schedule": {"cron": "0 9 * * 1-5", "timezone": "Europe/Vienna", "message": "Look around."},
    }
    file.write_text("name: x\nlimits: 3\n")
    assert settings_in(file) == {}


def test_an_empty_or_missing_file_gives_the_default_manifest(file: Path):
    assert read_manifest(file) == AgentManifest()
    assert read_text(file, "# nothing\n") == AgentManifest()


def test_subagents_can_be_limited_by_number_and_depth(file: Path):
    text = "subagents: {names: [plan], max_depth: 1, max_parallel: 4}"
    supervisor = SubagentRules(names=("plan",), max_depth=1, max_parallel=4)
    assert read_text(file, text).subagents == supervisor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tols: [read]", "warning agent.yaml:1: tols is unknown and has no effect (did you mean"),
        ("a:\n  - b\n", "warning agent.yaml:1: a is unknown and has no effect (known are name,"),
        ("name: x\nname: y", "warning agent.yaml:2: name occurs twice (the last one is used)"),
        ("name: [x]", "error agent.yaml:1: name must be text"),
        ("- x", "error agent.yaml:1: must be names with values (write it as"),
        ("name: 'x\n", "error agent.yaml:2: not YAML"),
        ("effort: huge", "error agent.yaml:1: effort must be one of none,"),
        ("limits:\n  max_turns: many", "error agent.yaml:2: max_turns must be a whole number"),
        ("limits:\n  max_cost_usd: -1", "error agent.yaml:2: max_cost_usd must be an amount"),
        ("limits:\n  max_turn: 3", "warning agent.yaml:2: max_turn is unknown and has"),
        ("permissions:\n  deny: ['Read(']", "error agent.yaml:2: deny has an invalid rule"),
        ("permissions:\n  allow: ['Read(']", "warning agent.yaml:2: allow: "),
        ("permissions: {mode: yolo}", "error agent.yaml:1: mode is wrong: 'yolo' is not a mode"),
        ("coordinator: perhaps", "error agent.yaml:1: coordinator must be true or false"),
        ("schedule: {cron: daily}", "error agent.yaml:1: cron must have 5 fields"),
        ("schedule: {timezone: Mars}", "error agent.yaml:1: timezone must be a time zone"),
        ("environment: [x]", "error agent.yaml:1: environment must be names with values"),
    ],
)
def test_each_problem_is_reported_with_its_line(file: Path, text: str, expected: str):
    [finding] = list_findings(file, text)
    assert finding.startswith(expected)


def test_all_problems_are_reported_at_once(file: Path):
    assert (
        len(list_findings(file, "effort: huge\nlimits: {max_turns: x, max_seconds: y}\ntools: z\n"))
        == 4
    )


def test_an_invalid_deny_rule_is_an_error(file: Path):
    file.write_text("permissions: {deny: ['Read(']}")
    with pytest.raises(InvalidInput, match=r"agent\.yaml:1: deny has an invalid rule"):
        settings_in(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        settings_in(file)


def test_yaml_alias_bombs_are_refused(file: Path):
    bomb = "environment:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    [finding] = list_findings(file, bomb)
    assert "is too large or too deeply nested" in finding
    [finding] = list_findings(file, "environment:\n  a: &a [*a]\n")
    assert finding.startswith("error")


_texts = st.text(st.characters(codec="utf-8"), max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.one_of(_texts, st.builds("{}: {}".format, st.sampled_from(["limits", "tools"]), _texts)))
def test_any_text_is_read_without_an_exception(tmp_path_factory: pytest.TempPathFactory, text: str):
    file = tmp_path_factory.getbasetemp() / "agent.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    for finding in read_manifest(file).findings:
        assert finding.what


@pytest.mark.parametrize("key", ["spec_version: '1.0'", "apiVersion: agents/v1", "kind: Agent"])
def test_a_manifest_of_another_tool_is_reported_and_ignored(file: Path, key: str):
    text = f"{key}\nname: x\nmodel: {{id: some-model}}\ntools: {{search: true}}\npermissions: 3\n"
    found = read_text(file, text)
    assert found.error is None
    assert found.name == ""
    assert [finding.level for finding in found.findings] == ["warning"]
    assert "another tool's file" in found.findings[0].what
    assert settings_in(file) == {}
