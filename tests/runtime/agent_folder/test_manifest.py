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


def said(file: Path, text: str) -> AgentManifest:
    file.write_text(text, encoding="utf-8")
    return read_manifest(file)


def odd(file: Path, text: str) -> list[str]:
    return [f"{finding.level} {finding}" for finding in said(file, text).findings]


def test_all_that_it_may_say_is_read(file: Path):
    made = said(file, FULL)
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


def test_its_permissions_and_environment_have_the_shape_of_a_settings_file(file: Path):
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


def test_a_file_that_is_empty_or_not_there_says_nothing(file: Path):
    assert read_manifest(file) == AgentManifest()
    assert said(file, "# nothing\n") == AgentManifest()


def test_how_many_subagents_there_may_be_can_be_said_instead_of_which(file: Path):
    text = "subagents: {names: [plan], max_depth: 1, max_parallel: 4}"
    supervisor = SubagentRules(names=("plan",), max_depth=1, max_parallel=4)
    assert said(file, text).subagents == supervisor


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
def test_what_is_odd_is_named_with_its_line(file: Path, text: str, expected: str):
    [finding] = odd(file, text)
    assert finding.startswith(expected)


def test_all_that_is_wrong_is_named_at_once(file: Path):
    assert len(odd(file, "effort: huge\nlimits: {max_turns: x, max_seconds: y}\ntools: z\n")) == 4


def test_a_prohibition_that_cannot_be_understood_is_not_passed_over(file: Path):
    file.write_text("permissions: {deny: ['Read(']}")
    with pytest.raises(InvalidInput, match=r"agent\.yaml:1: deny has an invalid rule"):
        settings_in(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        settings_in(file)


def test_a_few_lines_cannot_stand_for_millions_of_values(file: Path):
    bomb = "environment:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    [finding] = odd(file, bomb)
    assert "is too large or too deeply nested" in finding
    [finding] = odd(file, "environment:\n  a: &a [*a]\n")
    assert finding.startswith("error")


_texts = st.text(st.characters(codec="utf-8"), max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.one_of(_texts, st.builds("{}: {}".format, st.sampled_from(["limits", "tools"]), _texts)))
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str):
    file = tmp_path_factory.getbasetemp() / "agent.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    for finding in read_manifest(file).findings:
        assert finding.what


@pytest.mark.parametrize("key", ["spec_version: '1.0'", "apiVersion: agents/v1", "kind: Agent"])
def test_a_file_of_another_tool_is_reported_and_ignored(file: Path, key: str):
    text = f"{key}\nname: x\nmodel: {{id: some-model}}\ntools: {{search: true}}\npermissions: 3\n"
    found = said(file, text)
    assert found.error is None
    assert found.name == ""
    assert [finding.level for finding in found.findings] == ["warning"]
    assert "another tool's file" in found.findings[0].what
    assert settings_in(file) == {}
