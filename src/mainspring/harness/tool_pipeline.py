"""One tool call, from the model's asking to its one result, in this order:

lookup, cancelled?, validate, objection, backfill, gates (hooks and permission), the denied path;
then started (noted by the round), run, cap, PostToolUse hooks, settle. The log scrubs what goes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from mainspring.core import facts as fact
from mainspring.core.content import BlobBlock, Block, TextBlock, plain_text
from mainspring.core.errors import Conflict, Fenced, StoreFailed, ToolEnvironmentError
from mainspring.core.events import Failure
from mainspring.core.model import INVALID_JSON, ToolUse
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness import hook_events
from mainspring.harness.authorizer import Decision
from mainspring.harness.crash_recovery import result_event
from mainspring.harness.nested_budgets import calls_over
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_call import (
    attempt_of,
    call_hash,
    find_tool,
    new_call,
    normalized_call,
    redacted_input_error,
)

IN_DOUBT_TEXT = (
    "The system stopped while this call ran. Whether it took effect is not known: look before you"
    " do it again."
)
FORKED_CALL_TEXT = (
    "This call was under way in the session that this one was forked from; what came of it is not"
    " known here."
)
APPROVAL_VOID_REASON = "what it would do has changed since it was approved"
EARLIER_CALL_FAILED = (
    "Not done: an earlier {} call of the same turn failed. Decide anew what to do."
)
ROUND_CHARS = 200_000
"""Of all results of a turn together; what comes late is cut to what is left."""
_LEAST_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """May run now."""

    call: OpenCall
    tool: Tool
    traits: Traits
    context: tuple[str, ...] = ()
    """What gates want the model to read with its result."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """For a person or a client."""

    call: OpenCall


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """Has its outcome without running."""

    call: OpenCall
    tool_result: ToolResult


CallPlan: TypeAlias = ReadyCall | PendingCall | AnsweredCall


@dataclass(slots=True)
class ToolRound:
    """What the calls of one turn have in common while they are settled."""

    chars: int = 0
    """Of results so far."""
    stops: list[str] = field(default_factory=list[str])
    """Why hooks want the run to end."""
    waits: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Calls that have begun and wait for other threads: for which of their calls."""


async def prepare(
    context: ThreadContext, work: ToolRound, call: OpenCall, *, is_behind: bool
) -> CallPlan:
    """Everything that comes before a call is started. `is_behind`: something before it waits, so
    that what it finds when it runs cannot be judged yet."""
    tool = find_tool(context, call.name)
    if call.kind != "tool":
        return PendingCall(call)
    if call.is_foreign:
        return _refuse(call, FORKED_CALL_TEXT, "in_doubt")
    if call.started:
        return await _resolve_doubt(context, call, tool)
    return await _check(context, work, call, tool, is_behind=is_behind)


async def _check(
    context: ThreadContext, work: ToolRound, call: OpenCall, tool: Tool | None, *, is_behind: bool
) -> CallPlan:
    if tool is None:
        known = ", ".join(sorted(context.tools)) or "none"
        what = f"There is no tool {call.name!r}. There are: {known}."
        return _refuse(call, what, "unknown_tool")
    if wrong := input_error(context, tool, call.input):
        return _refuse(call, wrong, "invalid")
    if tool.traits(call.input).cascades and _has_failed_before(context, call):
        return _refuse(call, EARLIER_CALL_FAILED.format(call.name), "cancelled")
    object_to = None if is_behind else tool.objection
    if object_to and (objection := await object_to(attempt_of(context, call, call.input))):
        return _refuse(call, objection, "failed")
    return await _authorize(context, work, call, tool)


def input_error(context: ThreadContext, tool: Tool, given: Mapping[str, object]) -> str | None:
    """What is wrong with an input, in words for the model."""
    if (raw := given.get(INVALID_JSON)) is not None:
        return f"The input is not a JSON object, so nothing was done: {raw!s:.200}"
    name, wrong = tool.spec.name, tool.invalid(given) or redacted_input_error(tool, given)
    if wrong and name in context.deferred and name not in context.thread.session_state.loaded_tools:
        return f"{wrong}\nLoad its definition first: tool_search with the query 'select:{name}'."
    return wrong


def _has_failed_before(context: ThreadContext, call: OpenCall) -> bool:
    for other in context.thread.round.values():
        if other.id == call.id:
            return False
        if other.name == call.name and other.failure in ("failed", "timed_out", "cancelled"):
            tool = find_tool(context, other.name)
            if tool is not None and tool.traits(other.input).cascades:
                return True
    return False


async def _authorize(
    thread_context: ThreadContext, work: ToolRound, call: OpenCall, tool: Tool
) -> CallPlan:
    context: tuple[str, ...] = ()
    decision: Decision | None = None
    if call.decision is None:
        decision = await _judge(thread_context, call, tool)
        decision = _with_valid_input(thread_context, tool, decision)
        context = decision.context
        if decision.stop is not None:
            work.stops.append(decision.stop)
        thread_context.note(*decision.facts)
        await _note_decision(thread_context, call, tool, decision)
    elif call.decision == "ask" and call.answer is not None:
        decision = await _take_answer(thread_context, call, tool)
    call = thread_context.thread.round[call.id]
    match call.decision:
        case "allow":
            traits = tool.traits(call.input)
            if traits.by_client:
                return _hand_to_client(thread_context, call)
            return ReadyCall(call, tool, traits, context)
        case "ask" | None:
            return PendingCall(call)
        case "deny":
            return await _deny(thread_context, call, tool, decision)


def _hand_to_client(context: ThreadContext, call: OpenCall) -> CallPlan:
    """From here on it waits for the client's result, whatever happens to us."""
    key = attempt_of(context, call, call.input).idempotency_key
    context.note(fact.ToolCallStarted(tool_use_id=call.id, idempotency_key=key, by_client=True))
    return PendingCall(context.thread.round[call.id])


async def _judge(context: ThreadContext, call: OpenCall, tool: Tool) -> Decision:
    early = context.speculative_reads
    if early is not None and (decision := await early.decision(call.id)) is not None:
        return decision
    return await authorize_call(context, attempt_of(context, call, call.input), tool)


async def authorize_call(context: ThreadContext, call: Call, tool: Tool) -> Decision:
    """What the gates say to a call."""
    return await context.authorizer.authorize(
        normalized_call(call, tool), tool, tool.traits(call.input)
    )


def _with_valid_input(context: ThreadContext, tool: Tool, decision: Decision) -> Decision:
    """What a gate has made of the input is checked like what a model wrote."""
    changed = decision.updated_input
    if changed is None or (wrong := input_error(context, tool, changed)) is None:
        return decision
    reason = f"a hook changed the input to one that the tool does not take: {wrong}"
    return replace(decision, decision="deny", reason=reason, updated_input=None)


async def _note_decision(
    context: ThreadContext, call: OpenCall, tool: Tool, decision: Decision
) -> None:
    given = call.input if decision.updated_input is None else decision.updated_input
    preview = None
    if decision.decision == "ask" and tool.preview is not None:
        preview = await tool.preview(attempt_of(context, call, given))
    changed = decision.updated_input
    context.note(
        fact.ToolCallAuthorized(
            tool_use_id=call.id,
            decision=decision.decision,
            gate=decision.gate,
            rule=decision.rule,
            reason=decision.reason,
            call_hash=call_hash(call.name, given, preview),
            preview=preview,
            updated_input=None if changed is None else dict(changed),
        )
    )


async def _take_answer(context: ThreadContext, call: OpenCall, tool: Tool) -> Decision | None:
    """A person has answered; what they saw must still be what would happen, and a rule that was
    made meanwhile to forbid it holds. The decision, if it is not theirs but such a rule's."""
    assert call.answer is not None
    if call.answer.result == "allow":
        asked = normalized_call(attempt_of(context, call, call.input), tool)
        forbidden = context.authorizer.still_forbidden(asked, tool.traits(call.input))
        if forbidden is not None:
            await _note_decision(context, call, tool, forbidden)
            return forbidden
    preview = (
        None if tool.preview is None else await tool.preview(attempt_of(context, call, call.input))
    )
    seen = call_hash(call.name, call.input, preview)
    is_void = call.answer.result == "allow" and call.call_hash not in (None, seen)
    context.note(
        fact.ToolCallAuthorized(
            tool_use_id=call.id,
            decision="ask" if is_void else call.answer.result,
            gate="default" if is_void else "person",
            reason=APPROVAL_VOID_REASON if is_void else call.answer.deny_message,
            call_hash=seen,
            preview=preview if is_void else None,
        )
    )
    return None


async def _deny(
    context: ThreadContext, call: OpenCall, tool: Tool, decision: Decision | None
) -> CallPlan:
    asked = attempt_of(context, call, call.input)
    denied = hook_events.permission_denied(normalized_call(asked, tool), call.reason)
    hook_result = await context.run_hooks(denied, is_context=False)
    told = [denial_text(call.reason), *hook_result.context]
    is_plan = decision is not None and decision.gate == "mode"
    if is_plan and tool.preview is not None and (preview := await tool.preview(asked)):
        told.append(f"It would do this:\n{preview}")
    return _refuse(call, "\n".join(told), "denied")


def denial_text(reason: str | None) -> str:
    """The first thing that the model reads about a call that it may not make."""
    return f"Not allowed: {reason or 'the permission rules deny it'}."


async def _resolve_doubt(context: ThreadContext, call: OpenCall, tool: Tool | None) -> CallPlan:
    """It was started, and something came before its result."""
    if tool is None:
        return _refuse(call, IN_DOUBT_TEXT, "in_doubt")
    traits = tool.traits(call.input)
    policy = call.in_doubt or traits.in_doubt
    if policy == "probe" and tool.probe is not None:
        found = await tool.probe(attempt_of(context, call, call.input))
        return ReadyCall(call, tool, traits) if found is None else AnsweredCall(call, found)
    if policy == "retry":
        return ReadyCall(call, tool, traits)
    if policy == "ask":
        if call.answer is None:
            return PendingCall(call)
        if call.answer.result == "allow":
            return ReadyCall(call, tool, traits)
    return _refuse(call, IN_DOUBT_TEXT, "in_doubt")


def _refuse(call: OpenCall, why: str, error: Failure) -> AnsweredCall:
    return AnsweredCall(call, ToolResult.text(why, ok=False, error=error))


def begin_speculative(context: ThreadContext, use: ToolUse) -> None:
    """Start a call whose input is complete, if it only reads and nothing before it must come
    first."""
    early = context.speculative_reads
    if early is None or early.is_closed:
        return
    tool = None if use.name in context.custom_tools else find_tool(context, use.name)
    if tool is None or input_error(context, tool, use.input) or calls_over(context.tiers):
        return early.close()
    traits = tool.traits(use.input)
    if not (traits.read_only and traits.concurrent and traits.in_doubt == "retry"):
        return early.close()
    call = new_call(context, context.writer.new_event_id(), use.name, use.input)
    early.begin(
        use,
        call,
        authorize=partial(authorize_call, context, call, tool),
        perform=partial(_perform, tool, call),
    )


async def execute(context: ThreadContext, work: ToolRound, ready_call: ReadyCall) -> ToolResult:
    """Run a call that was noted as started, and make of its outcome what the model reads."""
    call = attempt_of(context, ready_call.call, ready_call.call.input)
    outcome = (
        await context.speculative_reads.result(call.id)
        if context.speculative_reads is not None
        else None
    )
    if outcome is None:
        outcome = await _perform(ready_call.tool, call)
    if outcome.waits_for:
        return outcome
    outcome = await _cap_result(context, work, outcome, ready_call.traits.max_chars)
    return await _after_hooks(context, work, ready_call, call, outcome)


async def _perform(tool: Tool, call: Call) -> ToolResult:
    try:
        return await tool.run(call)
    except ToolEnvironmentError as error:
        return ToolResult.text(str(error), ok=False, error="unavailable")
    except (Conflict, Fenced, StoreFailed):
        raise  # a subagent could not write: what it has said and done is not in the log
    # The tool may be anybody's: whatever it raises is a value that the model reads, not a crash of
    # the session. Cancellation is not caught.
    except Exception as error:  # noqa: BLE001
        return ToolResult.text(f"{type(error).__name__}: {error}", ok=False, error="failed")


async def _after_hooks(
    context: ThreadContext,
    work: ToolRound,
    ready_call: ReadyCall,
    call: Call,
    tool_result: ToolResult,
) -> ToolResult:
    done = hook_events.after_tool(normalized_call(call, ready_call.tool), tool_result)
    hook_result = await context.run_hooks(done, is_context=False)
    if hook_result.stop is not None:
        work.stops.append(hook_result.stop)
    if hook_result.updated_output is not None:
        changed = replace(tool_result, content=(TextBlock(hook_result.updated_output),))
        tool_result = await _cap_result(context, work, changed, ready_call.traits.max_chars)
    told = [*ready_call.context, *hook_result.context]
    if hook_result.blocked and hook_result.reason:
        told.append(hook_result.reason)
    notes = tuple(TextBlock(f"<hook>{text}</hook>") for text in told)
    return replace(tool_result, content=(*tool_result.content, *notes)) if notes else tool_result


async def _cap_result(
    context: ThreadContext, work: ToolRound, tool_result: ToolResult, max_chars: int
) -> ToolResult:
    """A result over its cap goes to a blob; the model reads the beginning, the end and where."""
    text = plain_text(
        tuple(item for item in tool_result.content if not isinstance(item, BlobBlock))
    )
    cap = min(max_chars, max(_LEAST_CHARS, ROUND_CHARS - work.chars))
    work.chars += min(len(text), cap)
    if len(text) <= cap:
        return tool_result
    text = context.writer.scrubbed(
        text
    )  # of a secret that was cut in two nobody would know the rest
    kept = await context.writer.put_blob(text.encode(), media_type="text/plain")
    half = cap // 2
    preview = (
        f"{text[:half]}\n[... {len(text) - 2 * half} characters left out; history_read shows"
        f" the whole of blob {kept.hash} ...]\n{text[-half:]}"
    )
    media: list[Block] = [
        block for block in tool_result.content if not isinstance(block, TextBlock)
    ]
    block = BlobBlock(preview=preview, hash=kept.hash, size=kept.size, media_type=kept.media_type)
    return replace(tool_result, content=(block, *media))


def settle(context: ThreadContext, call: OpenCall, tool_result: ToolResult) -> None:
    """Give a call its one result, with what it did besides."""
    context.note_pending_facts()
    context.note(*tool_result.facts, result_event(call, tool_result))
