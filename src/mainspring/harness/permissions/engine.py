"""The permission engine of one session: hooks first, then rules and modes, then the classifier,
and people last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import KnownPayload, PermissionUpdate, PermissionUpdated
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookResult, Hooks
from mainspring.core.tool import Call, Tool, Traits
from mainspring.harness import hook_events
from mainspring.harness.authorizer import Decision
from mainspring.harness.permissions import classifier as classify
from mainspring.harness.permissions.call_analysis import CallLocation, analyze_call, location_after
from mainspring.harness.permissions.decide import PROTECTED, decide, with_ask_target
from mainspring.harness.permissions.grant_state import CLASSIFIER, GrantState, apply, check_updates
from mainspring.harness.permissions.policy import (
    Mode,
    Policy,
    PolicyRule,
    stricter_mode,
    with_skill_rules,
)
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Continue, Ended

NOBODY_TO_ASK = (
    "Nobody is available to approve it: leave the file unchanged, continue with the rest, and tell"
    " the user what to change there (or to run this again with --allow-protected and that path)"
)
Classifier: TypeAlias = Callable[[str, str], Awaitable[tuple[str, tuple[KnownPayload, ...]]]]
"""From a system prompt and a question to a model's answer and the events to record."""


class NoHooks:
    async def run(self, event: HookEvent) -> HookResult:
        return EMPTY_HOOK_RESULT


@dataclass(slots=True, kw_only=True)
class PermissionEngine:
    thread: Thread
    policy: Policy
    location: Callable[[], CallLocation]
    """Where a call would run now."""
    clock: Clock
    is_sandboxed: bool
    hooks: Hooks = field(default_factory=NoHooks)
    classifier: Classifier | None = None
    is_headless: bool = False
    """Nobody can be asked: changes to protected paths are denied at once."""
    ceiling: Mode | None = None
    """The most permissive mode that may apply: a subagent's own, whatever the session's is."""
    on_compaction: Callable[[], None] = lambda: None
    """Called before compaction removes content that the model has seen."""
    _grant_state: GrantState = field(default_factory=GrantState, init=False)
    _folded_count: int = field(default=0, init=False)

    def add_rules(self, rules: tuple[PolicyRule, ...]) -> None:
        """Rules for this thread, besides those of the session."""
        self.policy = msgspec.structs.replace(self.policy, rules=(*self.policy.rules, *rules))

    @property
    def grant_state(self) -> GrantState:
        """The grants, revocations and counts of this session so far; for a subagent, with the mode
        that applies to it."""
        grants = self._fold_grants()
        return grants if self.ceiling is None else replace(grants, mode=self.mode)

    def _fold_grants(self) -> GrantState:
        events = self.thread.session_state.permissions
        for payload in events[self._folded_count :]:
            self._grant_state = apply(self._grant_state, payload)
        self._folded_count = len(events)
        return self._grant_state

    @property
    def mode(self) -> Mode:
        mode = self._fold_grants().mode or self.policy.mode or "default"
        return mode if self.ceiling is None else stricter_mode(mode, self.ceiling)

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        result = await self.hooks.run(hook_events.before_tool(call))
        if (denied := deny_before_call(result)) is not None:
            return denied
        if result.updated_input is not None:
            call = replace(call, input=tool.normalize_input(result.updated_input))
            traits = tool.traits(result.updated_input)
        decision = self._with_ask_target(
            apply_hook_permission(result, self.decide_by_rules(call, traits))
        )
        if decision.decision == "ask":
            decision = await self._ask(call, tool, decision)
        return with_hook_output(result, decision)

    def _with_ask_target(self, decision: Decision) -> Decision:
        decision = with_ask_target(decision, self.mode)
        is_askable = decision.decision == "ask" and not self.is_headless
        if decision.rule != PROTECTED or is_askable:
            return decision
        reason = f"{decision.reason}. {NOBODY_TO_ASK}"
        return replace(decision, decision="deny", reason=reason)

    def still_forbidden(self, call: Call, traits: Traits) -> Decision | None:
        decision = self.decide_by_rules(call, traits)
        return decision if decision.decision == "deny" else None

    def decide_by_rules(self, call: Call, traits: Traits) -> Decision:
        """The decision of the rules and the mode, without hooks."""
        location = location_after(self.thread.session_state.commands, self.location())
        # rules of the skills in use in this run; they apply to their own thread only
        skills = self.thread.session_state.skills if call.thread_id == self.thread.id else ()
        return decide(
            analyze_call(call.name, call.input, traits, location),
            with_skill_rules(self.policy, skills),
            self.grant_state,
            now=self.clock(),
            is_sandboxed=self.is_sandboxed,
        )

    async def _ask(self, call: Call, tool: Tool, decision: Decision) -> Decision:
        """Ask the classifier, if the mode requires it, or hooks, before a person is asked."""
        if decision.asks == "classifier" and self.classifier is not None:
            return await self._classify(call, self.classifier)

        async def decide_again(call: Call, traits: Traits) -> Decision:
            return self._with_ask_target(self.decide_by_rules(call, traits))

        result = await self.hooks.run(hook_events.permission_requested(call, decision.reason))
        return await answer_by_hooks(result, call, tool, decision, decide_again)

    async def _classify(self, call: Call, classifier: Classifier) -> Decision:
        pending = self.thread.round.get(call.id)
        calls = [
            classify.ProposedCall(name, args)
            for name, args in self.thread.session_state.calls
            if pending is None or args is not pending.input
        ]
        question = classify.classifier_prompt(
            self.thread.session_state.prompts,
            calls,
            classify.ProposedCall(call.name, call.input),
        )
        text, facts = await classifier(classify.SYSTEM, question)
        answer = classify.parse_answer(text)
        return Decision(
            facts=facts,
            decision="allow" if answer.is_allowed else "deny",
            gate="mode",
            rule=CLASSIFIER,
            reason=answer.reason,
        )

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        return await self.hooks.run(hook_event)

    async def after_round(self, thread: Thread) -> Ended | None:
        return None

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        return None

    async def before_compact(self, thread: Thread) -> None:
        self.on_compaction()


def apply_hook_permission(result: HookResult, decision: Decision) -> Decision:
    """A hook may be stricter than the rules; it may be laxer only where no rule applies."""
    if decision.decision == "deny":
        return decision
    is_settled = decision.decision == "ask" and decision.gate in ("rule", "guardrail")
    if result.permission in ("ask", "defer") and not is_settled:
        return Decision(decision="ask", gate="hook", reason=result.reason or decision.reason)
    if result.permission == "allow" and decision.decision == "ask" and not is_settled:
        return Decision(decision="allow", gate="hook", reason=result.reason)
    return decision


def deny_before_call(result: HookResult) -> Decision | None:
    """The decision, if hooks deny a call before the rules apply."""
    if result.permission != "deny" and not result.blocked:
        return None
    reason = result.reason or "a hook denied it"
    return with_hook_output(result, Decision(decision="deny", gate="hook", reason=reason))


async def answer_by_hooks(
    result: HookResult,
    call: Call,
    tool: Tool,
    decision: Decision,
    decide_again: Callable[[Call, Traits], Awaitable[Decision]],
) -> Decision:
    """The answer of hooks in a person's place, if they have one. A rule with `ask` always asks a
    person, even if a hook allows the call."""
    answer = decision
    if result.permission == "deny" or result.blocked:
        reason = result.reason or "a hook denied it"
        stop = reason if result.interrupt else None  # with `interrupt`, the run ends too
        answer = Decision(decision="deny", gate="hook", reason=reason, stop=stop)
    elif result.permission == "allow":
        changed = result.updated_input
        if changed is not None:  # the rules apply to the changed call too
            call = replace(call, input=tool.normalize_input(changed))
            decision = await decide_again(call, tool.traits(changed))
        allowed = Decision(decision="allow", gate="hook", reason=result.reason)
        is_open = decision.decision == "ask" and decision.gate not in ("rule", "guardrail")
        answer = replace(allowed if is_open else decision, updated_input=changed)
    return with_hook_output(replace(result, updated_input=None), answer)


def with_hook_output(result: HookResult, decision: Decision) -> Decision:
    """The decision, with the output of the hooks that ran for it."""
    facts: list[KnownPayload] = [*result.hook_runs]
    if result.updates and _are_valid_updates(result.updates):
        facts.append(PermissionUpdated(updates=result.updates, by="hook"))
    updated = decision.updated_input
    return replace(
        decision,
        updated_input=result.updated_input if updated is None else updated,
        context=(*result.context, *decision.context),
        stop=decision.stop or result.stop,
        facts=(*facts, *decision.facts),
    )


def _are_valid_updates(updates: tuple[PermissionUpdate, ...]) -> bool:
    try:
        check_updates(updates)
    except InvalidInput:
        return False  # an invalid update grants nothing
    return True
