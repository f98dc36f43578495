"""Rules hold against every name of the workspace, in words of commands as for the file tools."""

import os
from pathlib import Path

from tests.permissions.bash.aliases import ALIASED, ALIASES, EMPTIES_WORKSPACE
from tests.permissions.cases import HOME, decided, held, place, rules
from tests.row_checks import for_each

from mainspring.core.tool import Traits
from mainspring.harness.authorizer import Decision
from mainspring.harness.permissions.call_analysis import CallLocation, analyze_call, location_after
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.policy import Policy

CASES = [(rule, text) for rule, texts in ALIASED.items() for text in texts]


def decide_in_service(command: str, policy: Policy, where: CallLocation | None = None) -> Decision:
    there = where or place(aliases=ALIASES)
    judged = analyze_call("bash", {"command": command}, Traits(), there)
    return decided(judged, policy, is_sandboxed=True)


@for_each(("rule", "text"), CASES)
def test_a_path_rule_applies_through_an_alias_of_the_workspace(rule: str, text: str):
    assert decide_in_service(text, rules(allow=("Bash",), deny=(rule,))).decision != "allow"
    assert decide_in_service(text, rules(allow=("Bash",), ask=(rule,))).decision == "ask"


@for_each("text", EMPTIES_WORKSPACE)
def test_deleting_the_workspace_through_an_alias_needs_approval(text: str):
    assert decide_in_service(text, rules(allow=("Bash",))).decision == "ask"


def test_files_reached_through_an_alias_are_inside_the_workspace():
    policy = rules(allow=("Read(src/**)",), deny=("Read(.env)",))
    for text in ("cat /workspace/src/a", "cd /mnt/session/src && cat a"):
        assert decide_in_service(text, policy).decision == "allow"


def test_a_shell_inside_an_alias_is_checked_at_its_location():
    where = location_after(["cd /workspace/keys"], place(aliases=ALIASES))
    policy = rules(allow=("Bash",), deny=("Read(keys/**)",))
    assert decide_in_service("cat k", policy, where).decision == "deny"


def test_a_link_through_an_alias_is_followed(tmp_path: Path):
    root = tmp_path.resolve()
    (root / "out").symlink_to("/workspace/.env")
    (root / "up").symlink_to("/mnt/session")
    policy = Policy(
        workspace=str(root), home=HOME, rules=(*held("allow", "Bash"), *held("deny", "Read(.env)"))
    )
    for text in ("cat out", "cat up/.env", "cat /workspace/up/out"):
        assert (
            decide_in_service(text, policy, read_command_location(policy, ALIASES)).decision
            == "deny"
        )


def test_an_alias_that_contains_the_workspace_is_dropped():
    policy = replace_workspace(rules(), "/workspace/project")
    assert read_command_location(policy, ALIASES).aliases == ("/mnt/session", "/mnt/memory")
    assert read_command_location(policy, ALIASES).resolve("/workspace") == os.path.realpath(
        "/workspace"
    )


def replace_workspace(policy: Policy, workspace: str) -> Policy:
    return Policy(workspace=workspace, home=policy.home, rules=policy.rules)
