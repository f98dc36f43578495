"""Tool calls by a program that the model wrote (the tool `python`).

They pass the same checks as the model's own calls: validation, hooks, rules, snapshot, log. Calls
that need a person are refused, since a program cannot wait for days. The model reads only what the
program returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mainspring.core import events
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness import hook_events
from mainspring.harness.authorizer import Decision
from mainspring.harness.permissions.tool_names import INTERNAL_TOOLS, NEEDS_A_PERSON
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.effect_snapshots import snapshot_before_effects, take_snapshot
from mainspring.harness.tool_calls.tool_call import new_call, normalized_call
from mainspring.harness.tool_calls.tool_pipeline import (
    ToolRound,
    authorize_call,
    cap_result,
    denial_text,
    input_error,
    perform,
    with_valid_input,
)

MAX_CALLS = 100
"""For all programs of one turn together."""
_LOOK_UPS = frozenset(("history_read", "history_search", "memory_read", "memory_search"))
_NOT_FOR_PROGRAMS = ((INTERNAL_TOOLS - _LOOK_UPS) | NEEDS_A_PERSON) | {"python"}


@dataclass(slots=True)
class ProgramCalls:
    context: ThreadContext
    work: ToolRound
    count: int = field(default=0)

    async def call_tool(self, program: Call, name: str, args: Mapping[str, object]) -> ToolResult:
        context = self.context
        self.count += 1
        tool = None if context.toolbox.is_client_tool(name) else context.toolbox.find(name)
        if tool is None or tool.spec.name in _NOT_FOR_PROGRAMS:
            return _failure(f"a program cannot call the tool {name!r}", "unknown_tool")
        if self.count > MAX_CALLS:
            return _failure(f"programs can make {MAX_CALLS} tool calls per turn", "denied")
        if problem := input_error(context, tool, args):
            return _failure(problem, "invalid")
        call = new_call(context, context.writer.new_event_id(), tool.spec.name, args)
        if tool.objection is not None and (why := await tool.objection(call)):
            return _failure(why, "failed")
        decision = with_valid_input(context, tool, await authorize_call(context, call, tool))
        context.note(*decision.facts)
        if decision.stop is not None:
            self.work.stops.append(decision.stop)
        if refusal := _refusal(decision, tool.traits(args)):
            return self._end(program, call, _failure(refusal, "denied"))
        if decision.updated_input is not None:
            call = new_call(context, call.id, call.name, decision.updated_input)
        return await self._run(program, call, tool, decision)

    async def _run(self, program: Call, call: Call, tool: Tool, decision: Decision) -> ToolResult:
        context, traits = self.context, tool.traits(call.input)
        if not traits.read_only:
            await snapshot_before_effects(context)
        context.note(
            events.ProgramCallStarted(
                tool_use_id=program.id,
                call_id=call.id,
                name=call.name,
                input=dict(call.input),
                gate=decision.gate,
                rule=decision.rule,
            )
        )
        await context.event_sink.commit()
        result = await perform(tool, call)
        if result.waits_for:
            result = _failure("it waits for a person, and a program cannot wait", "denied")
        result = await self._after_hooks(call, tool, result)
        context.note_pending_facts()
        context.note(*result.facts)
        if not traits.read_only:
            await take_snapshot(context)
        capped = await cap_result(context, ToolRound(), result, traits.max_chars)
        self._end(program, call, capped)
        return result

    async def _after_hooks(self, call: Call, tool: Tool, result: ToolResult) -> ToolResult:
        hook_event = hook_events.after_tool(normalized_call(call, tool), result)
        hook_result = await self.context.run_hooks(hook_event, is_context=False)
        if hook_result.stop is not None:
            self.work.stops.append(hook_result.stop)
        if hook_result.blocked and hook_result.reason:
            return _failure(hook_result.reason, "denied")
        if hook_result.updated_output is not None:
            return ToolResult.text(hook_result.updated_output, ok=result.ok, error=result.error)
        return result

    def _end(self, program: Call, call: Call, result: ToolResult) -> ToolResult:
        self.context.note(
            events.ProgramCallEnded(
                tool_use_id=program.id,
                call_id=call.id,
                name=call.name,
                is_error=not result.ok,
                content=result.content,
            )
        )
        return result


def _refusal(decision: Decision, traits: Traits) -> str | None:
    if decision.decision == "deny":
        return denial_text(decision.reason)
    if decision.decision == "ask" or traits.needs_person or traits.by_client:
        return "Not allowed from a program: a person must approve it. Call the tool itself."
    return None


def _failure(text: str, error: events.Failure) -> ToolResult:
    return ToolResult.text(text, ok=False, error=error)
