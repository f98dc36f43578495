"""Decisions of an agent's own code, around those of the session's authorizer: hooks and guardrails
that are functions, and the output that the agent must give before it may stop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from mainspring.core.envelope import Event
from mainspring.core.events import KnownPayload
from mainspring.core.hook import HookEvent, HookResult
from mainspring.core.tool import Call, Tool, Traits
from mainspring.harness import hook_events
from mainspring.harness.answer_checks import REVISIONS, Check, run_checks, run_evidence_checks
from mainspring.harness.authorizer import Authorizer, Decision
from mainspring.harness.function_hooks import (
    FunctionHook,
    merge_hook_results,
    run_function_hooks,
)
from mainspring.harness.permissions.engine import (
    answer_by_hooks,
    apply_hook_permission,
    deny_before_call,
    with_hook_output,
)
from mainspring.harness.state.thread import OUTPUT_TOOL, Thread
from mainspring.harness.stop_reasons import Continue, Ended

OUTPUT_MISSING = (
    f"Nobody reads your text: give your answer by calling {OUTPUT_TOOL} with what you have."
)


REVISE = "Your answer does not pass its checks. Give the whole answer again, corrected:"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAuthorizer:
    """An `Authorizer` that wraps the session's."""

    inner: Authorizer
    hooks: Sequence[FunctionHook] = ()
    output_retries: int | None = None
    """How often to ask again for an output that is missing or invalid; `None`: none is required."""
    checks: Sequence[Check] = ()
    """Checks that the answer must pass before the run may end."""
    evidence: Sequence[str] = ()
    """Commands that must have passed since the last edit."""
    read_calls: Callable[[], Awaitable[Sequence[Event]]] | None = None
    """The calls of the session and their results, for `evidence`."""
    pending_facts: list[KnownPayload] = field(default_factory=list[KnownPayload])
    """Facts for the loop to record."""

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        result = await run_function_hooks(self.hooks, hook_events.before_tool(call), call)
        if (denied := deny_before_call(result)) is not None:
            return denied
        if result.updated_input is not None:
            call = replace(call, input=tool.normalize_input(result.updated_input))
            traits = tool.traits(result.updated_input)
        if self.output_retries is not None and call.name == OUTPUT_TOOL:
            allowed = Decision(decision="allow", gate="default")  # it only ends the run
            return with_hook_output(result, allowed)
        decision = apply_hook_permission(result, await self.inner.authorize(call, tool, traits))
        if decision.decision == "ask":
            decision = await self._ask(call, tool, decision)
        return with_hook_output(result, decision)

    async def _ask(self, call: Call, tool: Tool, decision: Decision) -> Decision:
        async def decide_again(call: Call, traits: Traits) -> Decision:
            return await self.inner.authorize(call, tool, traits)

        event = hook_events.permission_requested(call, decision.reason)
        result = await run_function_hooks(self.hooks, event, call)
        return await answer_by_hooks(result, call, tool, decision, decide_again)

    def still_forbidden(self, call: Call, traits: Traits) -> Decision | None:
        return self.inner.still_forbidden(call, traits)

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        inner = await self.inner.run_hooks(thread, hook_event)
        if not self.hooks:
            return inner
        own = await run_function_hooks(self.hooks, _with_output(thread, hook_event))
        return merge_hook_results(inner, own)

    async def after_round(self, thread: Thread) -> Ended | None:
        if self.output_retries is not None and thread.invalid_outputs > self.output_retries:
            why = f"the output was invalid {thread.invalid_outputs} times"
            return Ended("output_invalid", why)
        return await self.inner.after_round(thread)

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        if self.output_retries is not None and thread.output is None:
            if thread.retries.stop_feedback >= self.output_retries:
                return Ended("output_invalid", f"the model did not call {OUTPUT_TOOL}")
            return Continue("stop_hook_feedback", OUTPUT_MISSING)
        return await self._check(thread) or await self.inner.before_stop(thread)

    async def _check(self, thread: Thread) -> Continue | None:
        """Send back an answer that fails checks, a few times."""
        runs = await run_checks(self.checks, _answer_of(thread)) if self.checks else []
        if self.evidence and self.read_calls is not None:
            runs += await run_evidence_checks(self.evidence, self.read_calls, thread.id)
        self.pending_facts.extend(runs)
        problems = [f"- {item.reason}" for item in runs if item.outcome != "ok"]
        if not problems or thread.retries.stop_feedback >= REVISIONS:
            return None
        return Continue("stop_hook_feedback", "\n".join([REVISE, *problems]))

    async def before_compact(self, thread: Thread) -> None:
        await self.inner.before_compact(thread)


def _answer_of(thread: Thread) -> str:
    if thread.output is None:
        return thread.transcript.last_words()
    return msgspec.json.encode(thread.output.value).decode()


def _with_output(thread: Thread, hook_event: HookEvent) -> HookEvent:
    """At the end, hooks read the agent's output instead of its last message."""
    if thread.output is None or "last_assistant_message" not in hook_event.fields:
        return hook_event
    fields = {**hook_event.fields, "last_assistant_message": _answer_of(thread)}
    return replace(hook_event, fields=fields)
