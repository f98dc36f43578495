import json
from dataclasses import replace
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.capabilities.hooks.verdict import (
    CAN_BLOCK,
    GATE_EVENTS,
    HookFailure,
    combine,
    read_exit,
    read_judgement,
    read_output,
)
from mainspring.core.events import PermissionUpdate, RuleText
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEventName, HookResult

EVENTS: tuple[HookEventName, ...] = get_args(HookEventName)
STRICTNESS = [None, "allow", "ask", "defer", "deny"]


def result_of_output(event: HookEventName, **output: object) -> HookResult:
    reply = read_output(event, json.dumps(output).encode())
    assert isinstance(reply, HookResult), reply
    return reply


def result_of_specific(event: HookEventName, **output: object) -> HookResult:
    return result_of_output(event, hookSpecificOutput={"hookEventName": event, **output})


@pytest.mark.parametrize("decision", ["allow", "deny", "ask", "defer"])
def test_a_permission_decision_is_passed_on(decision: str):
    result = result_of_specific(
        "PreToolUse", permissionDecision=decision, permissionDecisionReason="why"
    )
    assert (result.permission, result.reason) == (decision, "why")
    assert result.blocked is (decision == "deny")


def test_the_older_decision_values_are_accepted():
    assert result_of_output("PreToolUse", decision="approve").permission == "allow"
    assert result_of_output("PreToolUse", decision="block", reason="no").permission == "deny"


def test_an_input_can_be_rewritten():
    hook_result = result_of_specific(
        "PreToolUse", permissionDecision="allow", updatedInput={"command": "ls"}
    )
    assert hook_result.updated_input == {"command": "ls"}


def test_a_permission_request_is_answered_with_rules():
    decision = {
        "behavior": "allow",
        "updatedInput": {"a": 1},
        "updatedPermissions": [
            {
                "type": "addRules",
                "rules": [{"toolName": "Bash", "ruleContent": "ls:*"}],
                "behavior": "allow",
                "destination": "session",
            }
        ],
    }
    result = result_of_specific("PermissionRequest", decision=decision)
    assert (result.permission, result.updated_input) == ("allow", {"a": 1})
    rule = RuleText(tool_name="Bash", rule_content="ls:*")
    assert result.updates == (PermissionUpdate(type="addRules", rules=(rule,), behavior="allow"),)


def test_a_permission_request_can_be_denied_with_an_interrupt():
    decision = {"behavior": "deny", "message": "never", "interrupt": True}
    result = result_of_specific("PermissionRequest", decision=decision)
    assert (result.permission, result.reason, result.interrupt) == ("deny", "never", True)


def test_updates_of_an_allowing_hook_are_dropped_if_another_denies():
    update = PermissionUpdate(type="setMode", mode="bypassPermissions")
    yes = HookResult(permission="allow", updates=(update,), updated_input={"a": 1})
    both = combine("PermissionRequest", [yes, HookResult(permission="deny", reason="no")])
    assert (both.permission, both.updates, both.updated_input) == ("deny", (), None)
    assert combine("PermissionRequest", [yes, HookResult(permission="ask")]).updates == ()
    assert combine("PermissionRequest", [replace(yes, permission="ask")]).updates == ()


def test_continue_false_ends_the_run_and_denies_the_call():
    result = result_of_output("PreToolUse", **{"continue": False}, stopReason="enough")
    assert (result.stop, result.permission, result.reason) == ("enough", "deny", "enough")
    result = result_of_output("PostToolUse", **{"continue": False})
    assert (result.stop, result.blocked) == ("a hook ended the run", False)


def test_a_system_message_is_for_people_and_context_for_the_model():
    hook_result = result_of_output(
        "PostToolUse", systemMessage="hi", hookSpecificOutput={"additionalContext": "read this"}
    )
    assert (hook_result.messages, hook_result.context) == (("hi",), ("read this",))


@pytest.mark.parametrize(("given", "read"), [("text", "text"), ({"a": [1]}, '{"a":[1]}')])
def test_a_tool_result_can_be_rewritten(given: object, read: str):
    assert result_of_specific("PostToolUse", updatedToolOutput=given).updated_output == read


def test_a_denied_call_can_be_retried():
    assert result_of_specific("PermissionDenied", retry=True).retry


def test_blocking_a_past_event_becomes_context_for_the_model():
    hook_result = result_of_output("PostToolUse", decision="block", reason="lint failed")
    assert (hook_result.blocked, hook_result.context) == (False, ("lint failed",))


def test_blocking_an_unblockable_event_becomes_a_message():
    hook_result = result_of_output("SessionEnd", decision="block", reason="stay")
    assert (hook_result.blocked, hook_result.messages) == (False, ("stay",))


@for_each("event", EVENTS)
def test_plain_text_is_context_only_for_session_start_and_prompts(event: HookEventName):
    reply = read_output(event, b" hello\n")
    assert isinstance(reply, HookResult)
    is_context = event in ("SessionStart", "UserPromptSubmit")
    assert reply.context == (("hello",) if is_context else ())
    assert bool(reply.ignored) is not is_context  # what has no effect is reported


def test_a_byte_order_mark_before_json_is_ignored():
    reply = read_output("PreToolUse", b'\xef\xbb\xbf{"decision": "block"}')
    assert isinstance(reply, HookResult)
    assert reply.blocked


def test_the_output_of_exit_status_2_is_ignored():
    reply = read_exit("PreToolUse", 2, stdout=b'{"decision": "approve"}', stderr=b"no\n")
    assert reply == HookResult(blocked=True, reason="no")


@pytest.mark.parametrize(
    ("status", "reason"), [(1, "exited with 1: boom"), (-9, "was killed by signal 9: boom")]
)
def test_any_other_exit_status_is_a_failure(status: int, reason: str):
    assert read_exit("Stop", status, stdout=b"", stderr=b"boom\nmore") == HookFailure(reason)


def test_output_for_another_event_is_a_failure():
    wrong = b'{"hookSpecificOutput": {"hookEventName": "Stop", "permissionDecision": "allow"}}'
    assert isinstance(read_output("PreToolUse", wrong), HookFailure)


@for_each(
    "garbage",
    [
        b"{",
        b"{}{}",
        b'{"continue": "no"}',
        b'{"decision": "maybe"}',
        b'{"decision": "block", "reason": 7}',
        b'{"systemMessage": "\xff"}',
        b'{"systemMessage": "\\ud800"}',
        b'{"hookSpecificOutput": []}',
        b'{"hookSpecificOutput": {"permissionDecision": "DENY"}}',
        b'{"hookSpecificOutput": {"updatedInput": "x"}}',
        b'{"hookSpecificOutput": {"decision": {"behavior": "sure"}}}',
        b'{"hookSpecificOutput": {"updatedInput": ' + b'{"a":' * 100_000,
    ],
)
def test_malformed_output_is_a_failure(garbage: bytes):
    assert isinstance(read_output("PreToolUse", garbage), HookFailure)


@pytest.mark.parametrize(
    ("answer", "blocked"),
    [
        ('{"ok": true}', False),
        ('{"ok": false, "reason": "no"}', True),
        ('{"decision": "approve"}', False),
        ('{"decision": "block", "reason": "no"}', True),
    ],
)
def test_a_judgement_allows_or_blocks(answer: str, blocked: bool):
    expected = HookResult(blocked=True, reason="no") if blocked else EMPTY_HOOK_RESULT
    assert read_judgement(answer) == expected


@for_each(
    "answer",
    [
        "",
        "yes",
        "{}",
        '{"ok": 1}',
        '{"ok": "true"}',
        '{"ok": null}',
        '{"ok": true, "decision": "block"}',
        'Sure! {"ok": true}',
        '{"ok": true} {"ok": false}',
        "\ud800",
        "[" * 100_000,
    ],
)
def test_any_other_judgement_is_a_failure(answer: str):
    assert isinstance(read_judgement(answer), HookFailure)


def test_text_of_a_hook_is_cut_to_a_maximum():
    hook_result = read_output("SessionStart", b"x" * 1_000_000)
    assert isinstance(hook_result, HookResult)
    assert len(hook_result.context[0]) == 10_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["block", "deny"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
decisions = st.dictionaries(
    st.sampled_from(["behavior", "updatedInput", "updatedPermissions", "message", "interrupt"]),
    json_values | st.sampled_from(["allow", "deny"]),
)
specifics = st.dictionaries(
    st.sampled_from(
        [
            *("hookEventName", "additionalContext", "permissionDecision", "updatedInput"),
            *("permissionDecisionReason", "updatedToolOutput", "decision", "retry"),
        ]
    ),
    json_values | decisions | st.sampled_from(["allow", "deny", "ask", "defer"]),
)
outputs = st.dictionaries(
    st.sampled_from(
        ["continue", "stopReason", "systemMessage", "decision", "reason", "hookSpecificOutput"]
    ),
    json_values | specifics,
)
events = st.sampled_from(EVENTS)


@given(events, st.integers(-64, 255), st.binary(), st.binary())
def test_any_output_gives_a_result_or_a_failure(
    event: HookEventName, status: int, stdout: bytes, stderr: bytes
):
    reply = read_exit(event, status, stdout=stdout, stderr=stderr)
    if status not in (0, 2):
        assert isinstance(reply, HookFailure)
    elif status == 2:
        assert isinstance(reply, HookResult)
        assert combine(event, [reply]).blocked is (event in CAN_BLOCK)


@given(st.sampled_from(sorted(GATE_EVENTS)), outputs)
def test_no_json_that_denies_is_taken_as_permission(event: HookEventName, output: dict[str, Any]):
    reply = read_output(event, json.dumps(output).encode(errors="replace"))
    specific = output.get("hookSpecificOutput")
    means_no = output.get("decision") == "block" or output.get("continue") is False
    if isinstance(specific, dict):
        means_no |= cast("dict[str, object]", specific).get("permissionDecision") == "deny"
    if isinstance(reply, HookResult) and means_no:
        assert combine(event, [reply]).blocked


@given(events, st.binary(min_size=1))
def test_malformed_braces_are_a_failure(event: HookEventName, garbage: bytes):
    assert isinstance(read_output(event, b"{" + garbage.replace(b"}", b"") + b"{"), HookFailure)


hook_results = st.builds(
    HookResult,
    permission=st.sampled_from([None, "allow", "ask", "defer", "deny"]),
    reason=st.none() | st.text(max_size=5),
    blocked=st.booleans(),
    stop=st.none() | st.text(max_size=5),
    context=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    messages=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    updated_input=st.none() | st.just({"a": 1}),
    interrupt=st.booleans(),
)


@given(events, st.lists(hook_results, max_size=4), hook_results)
def test_adding_a_hook_never_makes_the_result_more_lenient(
    event: HookEventName, some: list[HookResult], more: HookResult
):
    fewer, all_of_them = combine(event, some), combine(event, [*some, more])
    assert all_of_them.blocked >= fewer.blocked
    assert STRICTNESS.index(all_of_them.permission) >= STRICTNESS.index(fewer.permission)
    assert all_of_them.context[: len(fewer.context)] == fewer.context or event not in CAN_BLOCK


@given(events, st.lists(hook_results, max_size=4))
def test_combined_results_are_consistent(event: HookEventName, some: list[HookResult]):
    hook_result = combine(event, some)
    assert combine(event, [hook_result]) == hook_result
    assert not hook_result.blocked or event in CAN_BLOCK
    if event in ("PreToolUse", "PermissionRequest"):
        assert hook_result.blocked is (hook_result.permission == "deny")
    else:
        assert hook_result.permission is None
