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


def updated(*updates: PermissionUpdate, onto: GrantState | None = None) -> GrantState:
    return apply(onto or GrantState(), PermissionUpdated(updates=updates))


def add(**fields: object) -> PermissionUpdate:
    return replace(PermissionUpdate(type="addRules", rules=X_COM, behavior="allow"), **fields)


def used(grant_id: str) -> ToolCallAuthorized:
    return ToolCallAuthorized(tool_use_id="x", decision="allow", gate="grant", rule=grant_id)


def test_a_rule_that_is_added_holds_and_is_revocable():
    standing = updated(add())
    assert decided(FETCH, standing=standing).gate == "rule"
    standing = updated(
        PermissionUpdate(type="removeRules", rules=X_COM, behavior="allow"), onto=standing
    )
    assert decided(FETCH, standing=standing).decision == "ask"


def test_an_allow_rule_of_the_policy_is_revocable_and_comes_back():
    policy = rules(allow=("WebFetch(domain:x.com)",))
    standing = updated(PermissionUpdate(type="removeRules", rules=X_COM, behavior="allow"))
    assert decided(FETCH, policy, standing).decision == "ask"
    assert decided(FETCH, policy, updated(add(), onto=standing)).decision == "allow"


def test_a_deny_of_the_policy_cannot_be_taken_away():
    policy = rules(deny=("WebFetch(domain:x.com)",))
    standing = updated(
        PermissionUpdate(type="removeRules", rules=X_COM, behavior="deny"),
        PermissionUpdate(type="replaceRules", rules=(), behavior="deny"),
        add(),
    )
    assert decided(FETCH, policy, standing).decision == "deny"


def test_a_session_may_deny():
    standing = updated(add(behavior="deny"))
    assert decided(FETCH, rules(allow=("WebFetch",)), standing).decision == "deny"
    gone = updated(
        PermissionUpdate(type="removeRules", rules=X_COM, behavior="deny"), onto=standing
    )
    assert decided(FETCH, rules(allow=("WebFetch",)), gone).decision == "allow"


def test_rules_are_replaced_by_behaviour():
    standing = updated(add(), add(behavior="deny", rules=(RuleText(tool_name="Bash"),)))
    standing = updated(
        PermissionUpdate(type="replaceRules", rules=(), behavior="allow"), onto=standing
    )
    assert [rule.behavior for rule in standing.rules] == ["deny"]


def test_a_grant_is_named_by_its_id_and_expires():
    standing = updated(add(grant_id="g1", expires_at=SOON))
    decision = decided(FETCH, standing=standing)
    assert (decision.decision, decision.gate, decision.rule) == ("allow", "grant", "g1")
    late = NOW + timedelta(hours=1)
    assert decided(FETCH, standing=standing, now=late).decision == "ask"


def test_a_grant_runs_out():
    standing = updated(add(grant_id="g1", max_uses=2))
    for _ in range(2):
        assert decided(FETCH, standing=standing).decision == "allow"
        standing = apply(standing, used("g1"))
    assert decided(FETCH, standing=standing).decision == "ask"


@given(st.integers(0, 5), st.integers(0, 8), st.integers(-100, 100))
def test_a_grant_never_outlives_its_limits(most: int, uses: int, minutes: int):
    ends = (NOW + timedelta(minutes=minutes)).isoformat()
    standing = updated(add(grant_id="g", max_uses=most, expires_at=ends))
    for _ in range(uses):
        standing = apply(standing, used("g"))
    is_live = uses < most and minutes > 0
    assert decided(FETCH, standing=standing).decision == ("allow" if is_live else "ask")


def test_a_limit_without_an_id_is_kept_too():
    standing = updated(add(max_uses=1))
    decision = decided(FETCH, standing=standing)
    assert decision.gate == "grant"
    assert decided(FETCH, standing=apply(standing, used(decision.rule or ""))).decision == "ask"


@pytest.mark.parametrize("text", ["tomorrow", "", "2026-13-01T00:00:00Z"])
def test_a_grant_whose_end_cannot_be_read_has_ended(text: str):
    update = add(grant_id="g", expires_at=text)
    assert decided(FETCH, standing=updated(update)).decision == "ask"
    with pytest.raises(InvalidInput):
        check_updates((update,))


def test_a_grant_is_revoked_by_its_id():
    standing = updated(add(grant_id="g1"), add(grant_id="g2"))
    gone = updated(PermissionUpdate(type="removeRules", grant_id="g1"), onto=standing)
    assert decided(FETCH, standing=gone).rule == "g2"
    gone = updated(PermissionUpdate(type="removeRules", grant_id="g2"), onto=gone)
    assert decided(FETCH, standing=gone).decision == "ask"


def test_grants_do_not_pass_to_a_fork():
    forked = SessionForked(parent_session_id="s", parent_seq=3)
    assert apply(updated(add(grant_id="g")), forked).grants == {}


def test_a_grant_and_rules_allow_a_command_together():
    standing = updated(
        add(grant_id="g", rules=(RuleText(tool_name="Bash", rule_content="make *"),))
    )
    policy = rules(allow=("Bash(npm *)",))
    decision = decided(call("bash", command="npm ci && make all"), policy, standing)
    assert (decision.decision, decision.gate, decision.rule) == ("allow", "grant", "g")
    assert decided(call("bash", command="npm ci"), policy, standing).gate == "rule"


def test_folders_are_added_and_taken_away():
    elsewhere = call("read", file_path="/data/x")
    added = PermissionUpdate(type="addDirectories", directories=("/data",))
    standing = updated(added)
    assert decided(elsewhere, standing=standing).decision == "allow"
    removed = PermissionUpdate(type="removeDirectories", directories=("/data",))
    assert decided(elsewhere, standing=updated(removed, onto=standing)).decision == "ask"
    kept = updated(PermissionUpdate(type="removeDirectories", directories=(WORKSPACE,)))
    assert decided(call("read", file_path="x"), standing=kept).decision == "allow"


def blocked() -> ToolCallAuthorized:
    return ToolCallAuthorized(tool_use_id="x", decision="deny", gate="mode", rule="auto")


def test_three_blocks_in_a_row_are_too_many_until_a_person_approves():
    standing = GrantState(mode="auto")
    for _ in range(3):
        assert not standing.is_mistrusted
        standing = apply(standing, blocked())
    assert standing.is_mistrusted
    approved = ToolCallAuthorized(tool_use_id="x", decision="allow", gate="person")
    assert not apply(standing, approved).is_mistrusted


def test_twenty_blocks_in_all_are_too_many_until_the_mode_is_set_anew():
    standing = GrantState(mode="auto")
    allowed = ToolCallAuthorized(tool_use_id="x", decision="allow", gate="mode", rule="auto")
    for _ in range(20):
        assert not standing.is_mistrusted
        standing = apply(apply(standing, blocked()), allowed)
    assert standing.is_mistrusted
    assert not updated(PermissionUpdate(type="setMode", mode="auto"), onto=standing).is_mistrusted


def test_a_denial_by_a_rule_is_no_block():
    denied = ToolCallAuthorized(tool_use_id="x", decision="deny", gate="rule", rule="auto")
    assert apply(GrantState(), denied) == GrantState()


def test_a_mode_that_is_not_known_changes_nothing():
    assert updated(PermissionUpdate(type="setMode", mode="yolo")).mode is None
    assert updated(PermissionUpdate(type="setMode", mode="manual")).mode == "default"


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
def test_an_update_that_cannot_be_done_is_refused_and_gives_no_leave(update: PermissionUpdate):
    with pytest.raises(InvalidInput):
        check_updates((update,))
    assert decided(FETCH, standing=updated(update)).decision == "ask"


def test_other_events_change_nothing():
    standing = updated(add())
    assert apply(standing, UserMessage(content=())) is standing
    check_updates((add(grant_id="g", expires_at=SOON),))
