"""What hooks make of a call is judged like the call."""

import os
from datetime import UTC, datetime
from typing import Literal

import pytest
from tests.harness.stage import echo

from mainspring.core.hook import Occasion, Ruling
from mainspring.core.tool import Call, Traits
from mainspring.harness.gatekeeper import Gatekeeper
from mainspring.harness.gates import Decision
from mainspring.harness.permissions.judged import Place
from mainspring.harness.permissions.policy import HeldRule, Policy
from mainspring.harness.thread import Thread


class Changing:
    """Makes another call of one that a person would be asked about."""

    def __init__(self, command: str, permission: Literal["allow"] | None) -> None:
        self.command = command
        self.permission: Literal["allow"] | None = permission

    async def run(self, occasion: Occasion) -> Ruling:
        if occasion.event != "PermissionRequest":
            return Ruling()
        return Ruling(permission=self.permission, updated_input={"command": self.command})


async def asked(hooks: Changing) -> Decision:
    rules = (
        HeldRule(text="Bash(rm *)", behavior="deny"),
        HeldRule(text="Bash(git push *)", behavior="ask"),
    )
    gates = Gatekeeper(
        thread=Thread(id="sthr_1"),
        policy=Policy(workspace="/w", rules=rules),
        place=lambda: Place(workspace="/w", cwd="/w", home="/", resolve=os.path.normpath),
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
    return await gates.authorize(call, echo("bash"), Traits())


@pytest.mark.parametrize(
    ("command", "decision"),
    [("make all", "allow"), ("rm -rf src", "deny"), ("git push origin", "ask")],
)
async def test_what_a_hook_approves_instead_is_held_against_the_rules(command: str, decision: str):
    decided = await asked(Changing(command, "allow"))
    assert decided.decision == decision
    assert decided.updated_input == {"command": command}


async def test_a_hook_that_does_not_approve_changes_nothing():
    decided = await asked(Changing("make all", None))
    assert (decided.decision, decided.updated_input) == ("ask", None)


class Agreeable:
    """One hook wants a person to be asked, and another answers in the person's place."""

    def __init__(self, before: Literal["allow", "ask"]) -> None:
        self.before: Literal["allow", "ask"] = before

    async def run(self, occasion: Occasion) -> Ruling:
        if occasion.event == "PreToolUse":
            return Ruling(permission=self.before)
        return Ruling(permission="allow")


@pytest.mark.parametrize("is_headless", [True, False])
@pytest.mark.parametrize("before", ["allow", "ask"])
async def test_no_hook_lets_a_protected_path_be_changed(
    before: Literal["allow", "ask"], is_headless: bool
):
    gates = Gatekeeper(
        thread=Thread(id="sthr_1"),
        policy=Policy(workspace="/w", mode="bypassPermissions"),
        place=lambda: Place(workspace="/w", cwd="/w", home="/", resolve=os.path.normpath),
        clock=lambda: datetime(2026, 5, 1, tzinfo=UTC),
        is_sandboxed=True,
        is_headless=is_headless,
        hooks=Agreeable(before),
    )
    call = Call(
        id="1",
        name="write",
        input={"file_path": ".git/config", "content": ""},
        idempotency_key="k",
        session_id="s",
        thread_id="sthr_1",
    )
    decided = await gates.authorize(call, echo("write"), Traits())
    assert decided.decision == ("deny" if is_headless else "ask")
    assert ("tell the user" in (decided.reason or "")) is is_headless
