"""Paths through links are judged by where they lead, whatever their words say."""

import os
from pathlib import Path

import pytest
from tests.permissions.cases import decided, rules

from mainspring.core.tool import Traits
from mainspring.harness.permissions.call_analysis import analyze_call, location_after
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.permissions.policy import Policy


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    work = tmp_path / "work"
    for folder in ("secrets", "src", "other", "nest/.git"):
        (work / folder).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (work / "src/deep").symlink_to("../other")
    (work / "away").symlink_to("../outside")
    (work / "here").symlink_to("/proc/self/cwd")
    (work / "own").symlink_to("src")
    (work / "theirs").symlink_to("nest")
    policy = rules(allow=("Bash",), deny=("Read(./secrets/**)",))
    home = str(tmp_path)
    return Policy(
        workspace=os.path.realpath(work),
        home=home,
        rules=tuple(rule for rule in policy.rules if rule.behavior == "deny"),
    )


def decision_on(policy: Policy, *commands: str, mode: GrantState | None = None) -> str:
    place = location_after(commands[:-1], read_command_location(policy))
    judged = analyze_call("bash", {"command": commands[-1]}, Traits(), place)
    return decided(judged, policy, mode).decision


@pytest.mark.parametrize(
    "commands",
    [
        ("cat src/deep/../secrets/key",),
        ("cat src/deep/.././secrets/key",),
        ("cd src/deep && cat ../secrets/key",),
        ("cd src/deep", "cat ../secrets/key"),
        ("cat away/../work/secrets/key",),
        ("cat away/x",),
        ("cat away/../x",),
        ("cat here/secrets/key",),
        ("cat /dev/fd/../cwd/secrets/key",),
        ("cat /./proc/self/cwd/secrets/key",),
        ("grep -R x src",),
        ("git -C theirs status",),
        ("cd theirs && git status",),
        ("cd theirs", "git status"),
    ],
)
def test_a_path_that_leads_to_a_denied_file_or_outside_is_not_allowed(
    policy: Policy, commands: tuple[str, ...]
):
    assert decision_on(policy, *commands) != "allow"


@pytest.mark.parametrize(
    "command",
    ["touch src/deep/../../z", "cp x away/../z", "rm -rf src/deep/../../work", "touch here/z"],
)
def test_edits_that_lead_outside_need_approval(policy: Policy, command: str):
    assert decision_on(policy, command, mode=GrantState(mode="acceptEdits")) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "cat own/a",
        "cat src/../x",
        "cd src && git status",
        "git -C own log --oneline",
        "ls src/deep",
    ],
)
def test_paths_that_stay_in_the_workspace_are_allowed(policy: Policy, command: str):
    assert decision_on(policy, command) == "allow"
