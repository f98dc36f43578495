"""Our own hostile and everyday command lines, judged by the rule sets of the public lists."""

import pytest
from msgspec.structs import replace
from tests.permissions.bash.command_lists import Hostile, everyday, hostile
from tests.permissions.bash.trap_workspace import DENY_RULES, READ_ONLY_RULES
from tests.permissions.cases import call, decided, rules

from mainspring.harness.permissions.policy import Policy

_DENYING = rules(deny=DENY_RULES)
_WITHOUT_BASH = {
    "no rules": rules(),
    "deny": _DENYING,
    "deny, allow read-only": rules(deny=DENY_RULES, allow=READ_ONLY_RULES),
    "plan": replace(rules(), mode="plan"),
    "plan, deny": replace(_DENYING, mode="plan"),
}
_WITH_BASH = {"deny, allow Bash": rules(deny=DENY_RULES, allow=("Bash",))}


def _allowing_policies(line: Hostile, policies: dict[str, Policy]) -> list[str]:
    judged = call("bash", command=line.command)
    return [
        f"{line.kind}: {line.command!r} [{name}, {'' if is_sandboxed else 'un'}sandboxed]"
        for name, policy in policies.items()
        for is_sandboxed in (False, True)
        if decided(judged, policy, is_sandboxed=is_sandboxed).decision == "allow"
    ]


@pytest.mark.parametrize("kind", ["x", "rm", "push", "read"])
def test_no_hostile_command_is_allowed(kind: str):
    denying = {name: each for name, each in _WITHOUT_BASH.items() if "deny" in name}
    policies = {
        "x": _WITHOUT_BASH,
        "rm": _WITHOUT_BASH | _WITH_BASH,
        "push": _WITHOUT_BASH | _WITH_BASH,
        "read": denying | _WITH_BASH,
    }[kind]
    lines = [line for line in hostile() if line.kind == kind]
    assert not [wrong for line in lines for wrong in _allowing_policies(line, policies)]


def test_at_most_two_percent_of_everyday_commands_need_approval():
    lines = [line.command for line in everyday()]
    asked = [
        line
        for line in lines
        if decided(call("bash", command=line), is_sandboxed=True).decision != "allow"
    ]
    assert len(asked) <= len(lines) * 0.02, asked


def test_the_command_lists_are_long_and_every_hostile_command_was_observed():
    assert len(hostile()) >= 300
    assert len(everyday()) >= 150
    assert not [line.command for line in hostile() if not line.seen]
