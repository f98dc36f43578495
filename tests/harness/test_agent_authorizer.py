"""What hooks make of a call is judged like the call."""

import os
from datetime import UTC, datetime
from typing import Literal

import pytest
from tests.harness.session_setup import echo

from mainspring.core.hook import HookEvent, HookResult
from mainspring.core.tool import Call, Traits
from mainspring.harness.authorizer import Decision
from mainspring.harness.permissions.call_analysis import CallLocation
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy, PolicyRule
from mainspring.harness.state.thread import Thread


class InputChangingHooks:
    """Makes another call of one that a person would be asked about."""

    def __init__(self, command: str, permission: Literal["allow"] | None) -> None:
        self.command = command
        self.permission: Literal["allow"] | None = permission

    async def run(self, event: HookEvent) -> HookResult:
        if event.event != "PermissionRequest":
            return HookResult()
        return HookResult(permission=self.permission, updated_input={"command": self.command})


async def authorize_call(hooks: InputChangingHooks) -> Decision:
    rules = (
        PolicyRule(text="Bash(rm *)", behavior="deny"),
        PolicyRule(text="Bash(git push *)", behavior="ask"),
    )
    authorizer = PermissionEngine(
        thread=Thread(id="sthr_1"),
        policy=Policy(workspace="/w", rules=rules),
        location=lambda: CallLocation(workspace="/w", cwd="/w", home="/", resolve=os.path.normpath),
        clock=lambda: datetime(2026, 5, 1, tzinfo=UTC),
        is_sandboxed=True,
        hooks=hooks,
    )
    call = Call(
        id="1",
        name="bash",
        input={"command": "make"},
        idempotency_key="k",
        session_id="s",
        thread_id="sthr_1",
    )
    return await authorizer.authorize(call, echo("bash"), Traits())


@pytest.mark.parametrize(
    ("command", "decision"),
    [("make all", "allow"), ("rm -rf src", "deny"), ("git push origin", "ask")],
)
async def test_input_changed_by_a_hook_is_checked_against_the_rules(command: str, decision: str):
    decided = await authorize_call(InputChangingHooks(command, "allow"))
    assert (decided.decision, decided.updated_input) == (decision, {"command": command})


async def test_input_changed_by_a_hook_without_approval_is_ignored():
    decided = await authorize_call(InputChangingHooks("make all", None))
    assert (decided.decision, decided.updated_input) == ("ask", None)


class AllowingHooks:
    """One hook wants a person to be asked, and another answers in the person's place."""

    def __init__(self, before: Literal["allow", "ask"]) -> None:
        self.before: Literal["allow", "ask"] = before

    async def run(self, event: HookEvent) -> HookResult:
        if event.event == "PreToolUse":
            return HookResult(permission=self.before)
        return HookResult(permission="allow")


@pytest.mark.parametrize("is_headless", [True, False])
@pytest.mark.parametrize("before", ["allow", "ask"])
async def test_no_hook_can_allow_a_protected_path(
    before: Literal["allow", "ask"], is_headless: bool
):
    authorizer = PermissionEngine(
        thread=Thread(id="sthr_1"),
        policy=Policy(workspace="/w", mode="bypassPermissions"),
        location=lambda: CallLocation(workspace="/w", cwd="/w", home="/", resolve=os.path.normpath),
        clock=lambda: datetime(2026, 5, 1, tzinfo=UTC),
        is_sandboxed=True,
        is_headless=is_headless,
        hooks=AllowingHooks(before),
    )
    call = Call(
        id="1",
        name="write",
        input={"file_path": ".git/config", "content": ""},
        idempotency_key="k",
        session_id="s",
        thread_id="sthr_1",
    )
    decided = await authorizer.authorize(call, echo("write"), Traits())
    assert decided.decision == ("deny" if is_headless else "ask")
    assert ("tell the user" in (decided.reason or "")) is is_headless
