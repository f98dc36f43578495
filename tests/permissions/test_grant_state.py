"""What changes in the course of a session: modes, rules, grants that expire and run out."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.permissions.cases import NOW, WORKSPACE, call, decided, rules

from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    PermissionUpdate,
    PermissionUpdated,
    RuleText,
    SessionForked,
    ToolCallAuthorized,
    UserMessage,
)
from mainspring.harness.permissions.grant_state import GrantState, apply, check_updates

FETCH = call("web_fetch", url="https://x.com/")
X_COM = (RuleText(tool_name="WebFetch", rule_content="domain:x.com"),)
SOON = (NOW + timedelta(hours=1)).isoformat()


def apply_updates(*updates: PermissionUpdate, onto: GrantState | None = None) -> GrantState:
    return apply(onto or GrantState(), PermissionUpdated(updates=updates))


def add(**fields: object) -> PermissionUpdate:
    return replace(PermissionUpdate(type="addRules", rules=X_COM, behavior="allow"), **fields)


def grant_used(grant_id: str) -> ToolCallAuthorized:
    return ToolCallAuthorized(tool_use_id="x", decision="allow", gate="grant", rule=grant_id)


def test_an_added_rule_applies_and_can_be_removed():
    standing = apply_updates(add())
    assert decided(FETCH, standing=standing).gate == "rule"
    standing = apply_updates(
        PermissionUpdate(type="removeRules", rules=X_COM, behavior="allow"), onto=standing
    )
    assert decided(FETCH, standing=standing).decision == "ask"


def test_an_allow_rule_of_the_policy_can_be_removed_and_restored():
    policy = rules(allow=("WebFetch(domain:x.com)",))
    standing = apply_updates(PermissionUpdate(type="removeRules", rules=X_COM, behavior="allow"))
    assert decided(FETCH, policy, standing).decision == "ask"
    assert decided(FETCH, policy, apply_updates(add(), onto=standing)).decision == "allow"


def test_a_deny_rule_of_the_policy_cannot_be_removed():
    policy = rules(deny=("WebFetch(domain:x.com)",))
    standing = apply_updates(
        PermissionUpdate(type="removeRules", rules=X_COM, behavior="deny"),
        PermissionUpdate(type="replaceRules", rules=(), behavior="deny"),
        add(),
    )
    assert decided(FETCH, policy, standing).decision == "deny"


def test_a_session_can_add_and_remove_a_deny_rule():
    standing = apply_updates(add(behavior="deny"))
    assert decided(FETCH, rules(allow=("WebFetch",)), standing).decision == "deny"
    gone = apply_updates(
        PermissionUpdate(type="removeRules", rules=X_COM, behavior="deny"), onto=standing
    )
    assert decided(FETCH, rules(allow=("WebFetch",)), gone).decision == "allow"


def test_rules_are_replaced_by_behavior():
    standing = apply_updates(add(), add(behavior="deny", rules=(RuleText(tool_name="Bash"),)))
    standing = apply_updates(
        PermissionUpdate(type="replaceRules", rules=(), behavior="allow"), onto=standing
    )
    assert [rule.behavior for rule in standing.rules] == ["deny"]


def test_a_grant_is_named_by_its_id_and_expires():
    standing = apply_updates(add(grant_id="g1", expires_at=SOON))
    decision = decided(FETCH, standing=standing)
    assert (decision.decision, decision.gate, decision.rule) == ("allow", "grant", "g1")
    late = NOW + timedelta(hours=1)
    assert decided(FETCH, standing=standing, now=late).decision == "ask"


def test_a_grant_ends_after_its_maximum_uses():
    standing = apply_updates(add(grant_id="g1", max_uses=2))
    for _ in range(2):
        assert decided(FETCH, standing=standing).decision == "allow"
        standing = apply(standing, grant_used("g1"))
    assert decided(FETCH, standing=standing).decision == "ask"


@given(st.integers(0, 5), st.integers(0, 8), st.integers(-100, 100))
def test_a_grant_never_outlives_its_limits(most: int, uses: int, minutes: int):
    ends = (NOW + timedelta(minutes=minutes)).isoformat()
    standing = apply_updates(add(grant_id="g", max_uses=most, expires_at=ends))
    for _ in range(uses):
        standing = apply(standing, grant_used("g"))
    is_live = uses < most and minutes > 0
    assert decided(FETCH, standing=standing).decision == ("allow" if is_live else "ask")


def test_a_limited_rule_without_an_id_becomes_a_grant():
    standing = apply_updates(add(max_uses=1))
    decision = decided(FETCH, standing=standing)
    assert decision.gate == "grant"
    assert (
        decided(FETCH, standing=apply(standing, grant_used(decision.rule or ""))).decision == "ask"
    )


@pytest.mark.parametrize("text", ["tomorrow", "", "2026-13-01T00:00:00Z"])
def test_a_grant_with_an_unreadable_expiry_is_expired(text: str):
    update = add(grant_id="g", expires_at=text)
    assert decided(FETCH, standing=apply_updates(update)).decision == "ask"
    with pytest.raises(InvalidInput):
        check_updates((update,))


def test_a_grant_is_revoked_by_its_id():
    standing = apply_updates(add(grant_id="g1"), add(grant_id="g2"))
    gone = apply_updates(PermissionUpdate(type="removeRules", grant_id="g1"), onto=standing)
    assert decided(FETCH, standing=gone).rule == "g2"
    gone = apply_updates(PermissionUpdate(type="removeRules", grant_id="g2"), onto=gone)
    assert decided(FETCH, standing=gone).decision == "ask"


def test_grants_are_not_inherited_by_a_fork():
    forked = SessionForked(parent_session_id="s", parent_seq=3)
    assert apply(apply_updates(add(grant_id="g")), forked).grants == {}


def test_a_grant_and_rules_allow_a_command_together():
    standing = apply_updates(
        add(grant_id="g", rules=(RuleText(tool_name="Bash", rule_content="make *"),))
    )
    policy = rules(allow=("Bash(npm *)",))
    decision = decided(call("bash", command="npm ci && make all"), policy, standing)
    assert (decision.decision, decision.gate, decision.rule) == ("allow", "grant", "g")
    assert decided(call("bash", command="npm ci"), policy, standing).gate == "rule"


def test_directories_are_added_and_removed():
    elsewhere = call("read", file_path="/data/x")
    added = PermissionUpdate(type="addDirectories", directories=("/data",))
    standing = apply_updates(added)
    assert decided(elsewhere, standing=standing).decision == "allow"
    removed = PermissionUpdate(type="removeDirectories", directories=("/data",))
    assert decided(elsewhere, standing=apply_updates(removed, onto=standing)).decision == "ask"
    kept = apply_updates(PermissionUpdate(type="removeDirectories", directories=(WORKSPACE,)))
    assert decided(call("read", file_path="x"), standing=kept).decision == "allow"


def classifier_denial() -> ToolCallAuthorized:
    return ToolCallAuthorized(tool_use_id="x", decision="deny", gate="mode", rule="auto")


def test_three_consecutive_classifier_denials_need_a_person():
    standing = GrantState(mode="auto")
    for _ in range(3):
        assert not standing.is_mistrusted
        standing = apply(standing, classifier_denial())
    assert standing.is_mistrusted
    approved = ToolCallAuthorized(tool_use_id="x", decision="allow", gate="person")
    assert not apply(standing, approved).is_mistrusted


def test_twenty_classifier_denials_need_a_person_until_the_mode_is_set_again():
    standing = GrantState(mode="auto")
    allowed = ToolCallAuthorized(tool_use_id="x", decision="allow", gate="mode", rule="auto")
    for _ in range(20):
        assert not standing.is_mistrusted
        standing = apply(apply(standing, classifier_denial()), allowed)
    assert standing.is_mistrusted
    assert not apply_updates(
        PermissionUpdate(type="setMode", mode="auto"), onto=standing
    ).is_mistrusted


def test_a_denial_by_a_rule_is_not_a_classifier_denial():
    denied = ToolCallAuthorized(tool_use_id="x", decision="deny", gate="rule", rule="auto")
    assert apply(GrantState(), denied) == GrantState()


def test_an_unknown_mode_changes_nothing():
    assert apply_updates(PermissionUpdate(type="setMode", mode="yolo")).mode is None
    assert apply_updates(PermissionUpdate(type="setMode", mode="manual")).mode == "default"


@pytest.mark.parametrize(
    "update",
    [
        add(behavior=None),
        add(rules=(RuleText(tool_name="*"),)),
        add(rules=(RuleText(tool_name="Read", rule_content="[a"),)),
        PermissionUpdate(type="setMode", mode="yolo"),
        PermissionUpdate(type="setMode"),
    ],
)
def test_an_invalid_update_is_refused_and_allows_nothing(update: PermissionUpdate):
    with pytest.raises(InvalidInput):
        check_updates((update,))
    assert decided(FETCH, standing=apply_updates(update)).decision == "ask"


def test_other_events_change_nothing():
    standing = apply_updates(add())
    assert apply(standing, UserMessage(content=())) is standing
    check_updates((add(grant_id="g", expires_at=SOON),))
