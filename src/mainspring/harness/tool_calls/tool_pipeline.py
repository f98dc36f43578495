"""One tool call, from the request of the model to its one result, in this order:

lookup, validate, cancelled?, objection, authorize (hooks and permissions), deny; then started
(recorded by the round), run, cap, PostToolUse hooks, settle. The log redacts what is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from msgspec import Struct, field

from mainspring.core import events
from mainspring.core.content import BlobBlock, Block, TextBlock, plain_text
from mainspring.core.errors import Conflict, Fenced, StoreFailed, ToolEnvironmentError
from mainspring.core.model import INVALID_JSON, ToolUse
from mainspring.core.tool import Call, PersonQuestion, Tool, ToolResult
from mainspring.harness import hook_events
from mainspring.harness.authorizer import Decision
from mainspring.harness.budget import calls_over
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.crash_recovery import (
    plan_interrupted_call,
    result_event,
    voiding_events,
)
from mainspring.harness.tool_calls.tool_call import (
    CallPlan,
    PendingCall,
    ReadyCall,
    attempt_of,
    call_hash,
    new_call,
    normalized_call,
    redacted_input_error,
    refuse_call,
)

APPROVAL_VOID_REASON = "what it would do has changed since it was approved"
EARLIER_CALL_FAILED = (
    "Not done: an earlier {} call of the same turn failed. Decide again what to do."
)
ROUND_CHARS = 200_000
"""Limit for all results of a turn together; later results get the remainder."""
_LEAST_CHARS = 2_000  # left of a result, even if the context is almost full


ProgramCall: TypeAlias = Callable[[Call, str, Mapping[str, object]], Awaitable[ToolResult]]
"""The call that runs a program, and the name and input of the tool that the program calls."""


class ToolRound(Struct):
    """The state that the calls of one turn share."""

    chars: int = 0
    """Size of the results so far."""
    stops: list[str] = field(default_factory=list[str])
    """The reasons of hooks that end the run."""
    waits: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The pending calls of other threads, by the started call that waits for them."""
    suspended: set[str] = field(default_factory=set[str])
    """Calls that have asked a person and wait for the answer."""


async def prepare(
    context: ThreadContext, work: ToolRound, call: OpenCall, *, is_behind: bool
) -> CallPlan:
    """Do everything that comes before a call starts. `is_behind`: an earlier call of the turn still
    waits, so it is too early to ask the tool for an objection."""
    if call.kind != "tool":
        check = context.toolbox.client_input_checks.get(call.name)
        problem = check(call.input) if check and call.kind == "custom" else None
        return refuse_call(call, problem, "invalid") if problem else PendingCall(call)
    if call.is_foreign or call.started:
        return await plan_interrupted_call(context, call)
    return await _check(context, work, call, is_behind=is_behind)


async def _check(
    context: ThreadContext, work: ToolRound, call: OpenCall, *, is_behind: bool
) -> CallPlan:
    tool = context.toolbox.find(call.name)
    if tool is None:
        names = ", ".join(sorted(item.spec.name for item in context.toolbox.tools)) or "none"
        text = f"There is no tool {call.name!r}. Available tools: {names}."
        return refuse_call(call, text, "unknown_tool")
    if problem := input_error(context, tool, call.input):
        return refuse_call(call, problem, "invalid")
    if tool.traits(call.input).cascades and _has_failed_before(context, call):
        return refuse_call(call, EARLIER_CALL_FAILED.format(call.name), "cancelled")
    object_to = None if is_behind else tool.objection
    if object_to and (objection := await object_to(attempt_of(context, call))):
        return refuse_call(call, objection, "failed")
    return await _authorize(context, work, call, tool)


def input_error(context: ThreadContext, tool: Tool, args: Mapping[str, object]) -> str | None:
    """The error in an input, as a text for the model."""
    if (raw := args.get(INVALID_JSON)) is not None:
        return f"The input is not a JSON object, so nothing was done: {raw!s:.200}"
    name, problem = tool.spec.name, tool.invalid(args) or redacted_input_error(tool, args)
    is_deferred = name in context.toolbox.deferred
    if problem and is_deferred and name not in (context.thread.session_state.loaded_tools or ()):
        return f"{problem}\nLoad its definition first: tool_search with the query 'select:{name}'."
    return problem


def _has_failed_before(context: ThreadContext, call: OpenCall) -> bool:
    for other in context.thread.round.values():
        if other.id == call.id:
            return False
        if other.name == call.name and other.failure in ("failed", "timed_out", "cancelled"):
            tool = context.toolbox.find(other.name)
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
        decision = with_valid_input(thread_context, tool, decision)
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
    """From here on the call waits for the result of the client, even across a crash."""
    key = attempt_of(context, call).idempotency_key
    context.note(events.ToolCallStarted(tool_use_id=call.id, idempotency_key=key, by_client=True))
    return PendingCall(context.thread.round[call.id])


async def _judge(context: ThreadContext, call: OpenCall, tool: Tool) -> Decision:
    reads = context.speculative_reads
    if reads is not None and (decision := await reads.decision(call.id)) is not None:
        return decision
    return await authorize_call(context, attempt_of(context, call), tool)


async def authorize_call(context: ThreadContext, call: Call, tool: Tool) -> Decision:
    """Ask the authorizer about a call."""
    return await context.toolbox.authorizer.authorize(
        normalized_call(call, tool), tool, tool.traits(call.input)
    )


def with_valid_input(context: ThreadContext, tool: Tool, decision: Decision) -> Decision:
    """Validate an input that a hook has changed like one that the model wrote."""
    changed = decision.updated_input
    if changed is None or (problem := input_error(context, tool, changed)) is None:
        return decision
    reason = f"a hook changed the input to one that the tool does not accept: {problem}"
    return replace(decision, decision="deny", reason=reason, updated_input=None)


async def _note_decision(
    context: ThreadContext, call: OpenCall, tool: Tool, decision: Decision
) -> None:
    args = call.input if decision.updated_input is None else decision.updated_input
    preview = None
    if decision.decision == "ask" and tool.preview is not None:
        preview = await tool.preview(new_call(context, call.id, call.name, args, call))
    changed = decision.updated_input
    context.note(
        events.ToolCallAuthorized(
            tool_use_id=call.id,
            decision=decision.decision,
            gate=decision.gate,
            rule=decision.rule,
            reason=decision.reason,
            call_hash=call_hash(call.name, args, preview),
            preview=preview,
            updated_input=None if changed is None else dict(changed),
        )
    )


async def _take_answer(context: ThreadContext, call: OpenCall, tool: Tool) -> Decision | None:
    """Apply a person's answer. It is void if the call would now do something else. A deny rule that
    was added in the meantime wins: then return its decision."""
    assert call.answer is not None
    if call.answer.result == "allow":
        normalized = normalized_call(attempt_of(context, call), tool)
        forbidden = context.toolbox.authorizer.still_forbidden(normalized, tool.traits(call.input))
        if forbidden is not None:
            await _note_decision(context, call, tool, forbidden)
            return forbidden
    preview = None if tool.preview is None else await tool.preview(attempt_of(context, call))
    current_hash = call_hash(call.name, call.input, preview)
    is_void = call.answer.result == "allow" and call.call_hash not in (None, current_hash)
    context.note(
        events.ToolCallAuthorized(
            tool_use_id=call.id,
            decision="ask" if is_void else call.answer.result,
            gate="default" if is_void else "person",
            reason=APPROVAL_VOID_REASON if is_void else call.answer.deny_message,
            call_hash=current_hash,
            preview=preview if is_void else None,
        )
    )
    return None


async def _deny(
    context: ThreadContext, call: OpenCall, tool: Tool, decision: Decision | None
) -> CallPlan:
    attempt = attempt_of(context, call)
    denied = hook_events.permission_denied(normalized_call(attempt, tool), call.reason)
    hook_result = await context.run_hooks(denied, is_context=False)
    texts = [denial_text(call.reason), *hook_result.context]
    if hook_result.retry:
        texts.append("A hook allows you to try it again.")
    is_plan = decision is not None and decision.gate == "mode"
    if is_plan and tool.preview is not None and (preview := await tool.preview(attempt)):
        texts.append(f"It would do this:\n{preview}")
    return refuse_call(call, "\n".join(texts), "denied")


def denial_text(reason: str | None) -> str:
    """The first line that the model reads about a denied call."""
    return f"Not allowed: {reason or 'the permission rules deny it'}."


def begin_speculative(context: ThreadContext, use: ToolUse) -> None:
    """Start a complete call before the reply ends, if it is read-only and may run concurrently."""
    reads = context.speculative_reads
    if reads is None or reads.is_closed:
        return
    tool = None if context.toolbox.is_client_tool(use.name) else context.toolbox.find(use.name)
    if tool is None or input_error(context, tool, use.input) or calls_over(context.tiers):
        reads.is_closed = True
        return
    traits = tool.traits(use.input)
    if not (traits.read_only and traits.concurrent and traits.in_doubt == "retry"):
        reads.is_closed = True
        return
    call = new_call(context, context.writer.new_event_id(), use.name, use.input)
    reads.begin(
        use,
        call,
        authorize=partial(authorize_call, context, call, tool),
        perform=partial(perform, tool, call),
    )


async def execute(
    context: ThreadContext, work: ToolRound, ready_call: ReadyCall, call_tool: ProgramCall
) -> ToolResult:
    """Run a call that was recorded as started, and turn its result into what the model reads.
    `call_tool` lets the program of the call, if it has one, call other tools."""
    call = attempt_of(context, ready_call.call)
    call = replace(call, call_tool=partial(call_tool, call))
    result = (
        await context.speculative_reads.result(call.id)
        if context.speculative_reads is not None
        else None
    )
    if result is None:
        result = await perform(ready_call.tool, call)
    if result.waits_for or result.questions:
        return result
    result = await cap_result(context, work, result, ready_call.traits.max_chars)
    return await _after_hooks(context, work, ready_call, call, result)


async def perform(tool: Tool, call: Call) -> ToolResult:
    """Run a tool; an exception becomes a result."""
    try:
        return await tool.run(call)
    except ToolEnvironmentError as error:
        return ToolResult.text(str(error), ok=False, error="unavailable")
    except (Conflict, Fenced, StoreFailed):
        raise  # a subagent could not write to the log
    # The tool may be third-party code: any exception becomes a result that the model reads, not a
    # crash of the session. Cancellation is not caught.
    except Exception as error:  # noqa: BLE001
        return ToolResult.text(f"{type(error).__name__}: {error}", ok=False, error="failed")


async def _after_hooks(
    context: ThreadContext,
    work: ToolRound,
    ready_call: ReadyCall,
    call: Call,
    tool_result: ToolResult,
) -> ToolResult:
    hook_event = hook_events.after_tool(normalized_call(call, ready_call.tool), tool_result)
    hook_result = await context.run_hooks(hook_event, is_context=False)
    if hook_result.stop is not None:
        work.stops.append(hook_result.stop)
    if hook_result.updated_output is not None:
        changed = replace(tool_result, content=(TextBlock(hook_result.updated_output),))
        tool_result = await cap_result(context, work, changed, ready_call.traits.max_chars)
    texts = [*ready_call.context, *hook_result.context]
    if hook_result.blocked and hook_result.reason:
        texts.append(hook_result.reason)
    notes = tuple(TextBlock(f"<hook>{text}</hook>") for text in texts)
    return replace(tool_result, content=(*tool_result.content, *notes)) if notes else tool_result


async def cap_result(
    context: ThreadContext, work: ToolRound, tool_result: ToolResult, max_chars: int
) -> ToolResult:
    """Store a result above its limit as a blob; the model reads both of its ends and its hash."""
    tool_result = await _without_split_secrets(context, _with_few_blocks(tool_result))
    text = plain_text(
        tuple(item for item in tool_result.content if not isinstance(item, BlobBlock))
    )
    cap = min(max_chars, max(_LEAST_CHARS, ROUND_CHARS - work.chars))
    work.chars += min(len(text), cap)
    if len(text) <= cap:
        return tool_result
    text = await context.writer.scrubbed_aside(
        text
    )  # before the cut: half a secret would not be recognized
    blob = await context.writer.put_blob(text.encode(), media_type="text/plain")
    half = cap // 2
    preview = (
        f"{text[:half]}\n[... {len(text) - 2 * half} characters left out; history_read shows"
        f" the whole blob {blob.hash} ...]\n{text[-half:]}"
    )
    media: list[Block] = [
        block for block in tool_result.content if not isinstance(block, TextBlock)
    ]
    block = BlobBlock(preview=preview, hash=blob.hash, size=blob.size, media_type=blob.media_type)
    return replace(tool_result, content=(block, *media))


_MAX_BLOCKS = 200
"""Blocks of a result. Each costs its wrapping in every request, and no compaction removes it."""


def _with_few_blocks(tool_result: ToolResult) -> ToolResult:
    """A result of very many blocks with its texts in one, and without the media that do not fit."""
    if len(tool_result.content) <= _MAX_BLOCKS:
        return tool_result
    texts = [item.text for item in tool_result.content if isinstance(item, TextBlock) and item.text]
    other = [item for item in tool_result.content if not isinstance(item, TextBlock)]
    if len(other) >= _MAX_BLOCKS:
        texts.append(f"[{len(other) - _MAX_BLOCKS + 1:,} more parts were left out]")
    text = "\n".join(texts) or "(no content)"
    return replace(tool_result, content=(TextBlock(text), *other[: _MAX_BLOCKS - 1]))


async def _without_split_secrets(context: ThreadContext, tool_result: ToolResult) -> ToolResult:
    """A result whose texts are one block if a secret continues from one to the next."""
    texts = [item.text for item in tool_result.content if isinstance(item, TextBlock) and item.text]
    if len(texts) < 2:
        return tool_result
    whole = "".join(texts)
    clean = await context.writer.scrubbed_aside(whole)
    if clean == whole or clean == await _scrubbed_apart(context, texts):
        return tool_result
    media = (item for item in tool_result.content if not isinstance(item, TextBlock))
    return replace(tool_result, content=(TextBlock(clean), *media))


async def _scrubbed_apart(context: ThreadContext, texts: Sequence[str]) -> str:
    """Texts without what is secret in each of them."""
    parts = await context.writer.scrubbed_aside(_BETWEEN_TEXTS.join(texts))
    return parts.replace(_BETWEEN_TEXTS, "")


_BETWEEN_TEXTS = "\n\0\n"
"""Ends every secret."""


def suspend(context: ThreadContext, call: OpenCall, questions: Sequence[PersonQuestion]) -> bool:
    """Record the questions of a call, and void earlier ones that it now words differently. False if
    all of them were answered already: then it would ask forever."""
    requests: list[events.KnownPayload] = []
    for question in questions:
        subject, id_ = question.subject(call.id), question.approval_id(call.id)
        earlier = [
            item
            for item in call.approvals
            if item.request.subject.id == subject.id and not item.is_void
        ]
        if any(item.id == id_ for item in earlier):
            continue
        requests += [
            events.ApprovalVoided(
                approval_id=item.id, reason=APPROVAL_VOID_REASON, tool_use_id=call.id
            )
            for item in earlier
        ]
        schema = question.form_schema
        requests.append(
            events.ApprovalRequested(
                approval_id=id_,
                subject=subject,
                question=question.text,
                form_schema=None if schema is None else dict(schema),
                tool_use_id=call.id,
            )
        )
    context.note(*requests)
    return bool(requests)


def settle(context: ThreadContext, call: OpenCall, tool_result: ToolResult) -> None:
    """Record the one result of a call, with the facts that belong to it."""
    context.note_pending_facts()
    current = context.thread.round.get(call.id, call)
    context.note(*tool_result.facts, *voiding_events(current), result_event(call, tool_result))
