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


def served(command: str, policy: Policy, where: CallLocation | None = None) -> Decision:
    there = where or place(aliases=ALIASES)
    judged = analyze_call("bash", {"command": command}, Traits(), there)
    return decided(judged, policy, is_sandboxed=True)


@for_each(("rule", "text"), CASES)
def test_a_rule_on_a_path_holds_by_an_alias_of_the_workspace(rule: str, text: str):
    assert served(text, rules(allow=("Bash",), deny=(rule,))).decision != "allow"
    assert served(text, rules(allow=("Bash",), ask=(rule,))).decision == "ask"


@for_each("text", EMPTIES_WORKSPACE)
def test_the_workspace_is_not_emptied_by_an_alias_without_a_person(text: str):
    assert served(text, rules(allow=("Bash",))).decision == "ask"


def test_what_is_in_the_workspace_by_an_alias_is_in_the_workspace():
    policy = rules(allow=("Read(src/**)",), deny=("Read(.env)",))
    for text in ("cat /workspace/src/a", "cd /mnt/session/src && cat a"):
        assert served(text, policy).decision == "allow"


def test_a_shell_that_stays_behind_an_alias_is_judged_there():
    where = location_after(["cd /workspace/keys"], place(aliases=ALIASES))
    policy = rules(allow=("Bash",), deny=("Read(keys/**)",))
    assert served("cat k", policy, where).decision == "deny"


def test_a_link_that_leads_through_an_alias_is_followed(tmp_path: Path):
    root = tmp_path.resolve()
    (root / "out").symlink_to("/workspace/.env")
    (root / "up").symlink_to("/mnt/session")
    policy = Policy(
        workspace=str(root), home=HOME, rules=(*held("allow", "Bash"), *held("deny", "Read(.env)"))
    )
    for text in ("cat out", "cat up/.env", "cat /workspace/up/out"):
        assert served(text, policy, read_command_location(policy, ALIASES)).decision == "deny"


def test_a_workspace_that_lies_below_an_alias_has_no_such_alias():
    policy = replace_workspace(rules(), "/workspace/project")
    assert read_command_location(policy, ALIASES).aliases == ("/mnt/session",)
    assert read_command_location(policy, ALIASES).resolve("/workspace") == os.path.realpath(
        "/workspace"
    )


def replace_workspace(policy: Policy, workspace: str) -> Policy:
    return Policy(workspace=workspace, home=policy.home, rules=policy.rules)
