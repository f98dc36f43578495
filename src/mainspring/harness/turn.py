"""One turn: make room in the context, call the model, record its reply, and recover when the call
fails.
"""

from __future__ import annotations

from contextlib import aclosing
from decimal import Decimal

import msgspec
from msgspec import Struct

from mainspring.core import events, ids
from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed
from mainspring.core.model import (
    Delta,
    FailedOver,
    Reply,
    Request,
    RetryScheduled,
    Stalled,
    TextDelta,
    Thinking,
    ToolInputDelta,
    ToolUse,
    ToolUseReady,
)
from mainspring.harness.budget import affordable_output, reservation_cost
from mainspring.harness.context.compaction import compact_after_overflow, compact_if_needed
from mainspring.harness.context.request_builder import build_request, cache_break
from mainspring.harness.model_outage import OutageWaits, can_reschedule, error_detail
from mainspring.harness.reply_announcer import ReplyAnnouncer
from mainspring.harness.run_inbox import until_interrupted
from mainspring.harness.stop_reasons import Continue, Ended, Step
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.tool_pipeline import begin_speculative

# Tokens of a reply at first: a lower cap reserves less of the window and of the budget.
OUTPUT_CAP = 8_000
ESCALATED_CAP = 64_000  # tokens, after a reply that reached the first cap
CONTINUATIONS = 3  # of a reply that is cut there, too, or that the provider pauses
BROKEN_STREAMS = 2
"""How often a request is sent again because the connection broke in the middle of a reply."""
SHORTEST_REPLY = 500  # tokens that must be free for a reply
# A replay compares requests with these texts, so changing one breaks the replay of old logs.
RESUME_TEXT = "Go on."
CONTINUE_TEXT = (
    "Your last message was cut off at the output limit. Go on exactly where it stopped, without"
    " repeating anything, in smaller pieces."
)


class ReplyInterrupted(Struct, frozen=True):
    text: str
    """The part of the reply that had arrived."""


class ReplyFailed(Struct, frozen=True):
    error: ProviderFailed
    text: str
    """The part of the reply that had arrived, and was paid for."""
    has_begun: bool = False
    """Whether any part had arrived. If not, the router has already tried again."""
    ended: Ended | None = None
    """The limit that did not allow to wait until the model answers."""


class OpenRequest(Struct):
    """A model request in progress, with the ids that its end event refers to."""

    started_id: str
    reservation_id: str
    cap: int
    reply_announcer: ReplyAnnouncer
    cost_usd: Decimal = Decimal(0)
    """Set when the request has ended."""


async def take_turn(context: ThreadContext) -> Step | None:
    """Call the model once. `None`: look at the thread again."""
    context.select_model()
    await context.take_tool_changes()
    if (compaction_step := await compact_if_needed(context)) is not None:
        return compaction_step
    tokens = context.input_tokens()
    cap = _output_cap(context, tokens, is_escalated=context.thread.retries.escalated)
    reserved = reservation_cost(
        context.tiers, context.facts, input_tokens=tokens, output_tokens=cap
    )
    if isinstance(reserved, Ended):
        return reserved
    open_request = OpenRequest(
        context.writer.new_event_id(),
        context.new_id(ids.RESERVATION),
        cap,
        ReplyAnnouncer(context.emit, context.writer.new_event_id),
    )
    if (refused := await context.budget.reserve(open_request.reservation_id, reserved)) is not None:
        return Ended("budget_reached", refused)
    step = await _ask(context, open_request, tokens, reserved)
    await context.budget.settle(open_request.reservation_id, open_request.cost_usd)
    return step


async def _ask(
    context: ThreadContext, open_request: OpenRequest, tokens: int, reserved: Decimal
) -> Step | None:
    thread = context.thread
    if not thread.has_open_status and (status := context.status()) is not None:
        context.note(events.ContextStatus(text=status))
    if thread.prefix != context.prompt_prefix.digest:
        await context.event_sink.store_blob(
            context.prompt_prefix.digest, context.prompt_prefix.encoded
        )
    request_id = context.new_id(ids.REQUEST)
    context.note(
        events.BudgetReserved(
            reservation_id=open_request.reservation_id,
            cost_usd=str(reserved),
            input_tokens=tokens,
            output_tokens=open_request.cap,
        )
    )
    context.note(
        events.ModelRequestStarted(
            model=context.prompt_prefix.model,
            request_id=request_id,
            estimated_input_tokens=tokens,
            max_tokens=open_request.cap,
            prefix=context.prompt_prefix.digest,
            cache_break=cache_break(thread, context.prompt_prefix),
        ),
        event_ids=(open_request.started_id,),
    )
    await context.event_sink.commit()
    request = build_request(
        thread, context.prompt_prefix, max_tokens=open_request.cap, request_id=request_id
    )
    answer = await _request_reply(context, open_request, request)
    match answer:
        case Reply():
            return _record(context, open_request, answer)
        case ReplyInterrupted(text):
            return _record_interrupted(context, open_request, text)
        case ReplyFailed():
            return await _recover(context, open_request, answer)


def _output_cap(context: ThreadContext, tokens: int, *, is_escalated: bool) -> int:
    """How long the reply may be: as the model, the window and the budget allow.

    A small budget shortens the reply; the call is refused only if the reply would be too short.
    """
    largest = ESCALATED_CAP if is_escalated else OUTPUT_CAP
    cap = max(SHORTEST_REPLY, min(largest, context.facts.max_output, context.facts.window - tokens))
    allowed = affordable_output(
        context.tiers, context.facts, input_tokens=tokens, output_tokens=cap
    )
    return allowed if allowed >= SHORTEST_REPLY else cap


async def _request_reply(
    context: ThreadContext, open_request: OpenRequest, request: Request
) -> Reply | ReplyInterrupted | ReplyFailed:
    """Stream the reply until it is complete, the user interrupts, or the call fails. If the stream
    stalls, ask once more without streaming."""
    if context.speculative_reads is not None:  # an earlier attempt's calls belong to another reply
        context.speculative_reads.discard()
    waits = OutageWaits.begin(context)
    reader = _ReplyReader(context, request, open_request.reply_announcer, waits)
    is_interrupted = await until_interrupted(context, reader.read)
    text = "".join(reader.texts)
    if reader.reply is not None:
        return reader.reply
    if reader.error is None and is_interrupted:
        return ReplyInterrupted(text)
    if reader.error is not None and reader.error.kind == "stalled" and request.stream:
        open_request.reply_announcer = ReplyAnnouncer(context.emit, context.writer.new_event_id)
        return await _request_reply(
            context, open_request, msgspec.structs.replace(request, stream=False)
        )
    no_reply = ProviderFailed(request.model, "malformed", "it ended without a reply")
    return ReplyFailed(reader.error or no_reply, text, reader.has_begun, waits.ended)


class _ReplyReader(Struct):
    """The part of a reply that has arrived so far."""

    context: ThreadContext
    request: Request
    reply_announcer: ReplyAnnouncer
    waits: OutageWaits
    texts: list[str] = []
    reply: Reply | None = None
    error: ProviderFailed | None = None
    has_begun: bool = False

    async def read(self) -> None:
        try:
            async with aclosing(self.context.model.stream(self.request)) as deltas:
                async for delta in deltas:
                    if not isinstance(delta, RetryScheduled):
                        self._on_delta(delta)
                    elif (failure := await self.waits.accept(delta)) is not None:
                        self.error = failure
                        return
        except ProviderFailed as failed:
            self.error = failed

    def _on_delta(self, delta: Delta | Reply) -> None:
        self.has_begun = self.has_begun or not isinstance(delta, FailedOver | Stalled)
        if not isinstance(delta, Reply):
            self.reply_announcer.on_delta(delta)
        match delta:
            case Reply():
                self.reply = delta
            case FailedOver():
                self.context.note(
                    events.ProviderFailedOver(
                        from_model=delta.from_model, to_model=delta.to_model, reason=delta.reason
                    ),
                    events.LoopContinued(reason="provider_failed_over"),
                )
            case ToolUseReady(use=use):
                begin_speculative(self.context, use)
                self.context.emit(delta)
            case ToolInputDelta(name=name, json=""):
                toolbox = self.context.toolbox
                tool = toolbox.find(name)
                if toolbox.on_call_announced is not None and tool is not None:
                    toolbox.on_call_announced(tool.spec.name)
                self.context.emit(delta)
            case _:
                if isinstance(delta, TextDelta):
                    self.texts.append(delta.text)
                self.context.emit(delta)


def _end(
    context: ThreadContext,
    open_request: OpenRequest,
    usage: events.Usage,
    *,
    model: str,
    stop_reason: str,
    is_error: bool = False,
) -> None:
    cost = open_request.cost_usd = context.cost(usage, model)
    context.note(
        events.ModelRequestEnded(
            model_request_start_id=open_request.started_id,
            model_usage=usage,
            is_error=is_error,
            model=model,
            stop_reason=stop_reason,
            cost_usd=str(cost),
        ),
        events.BudgetSettled(reservation_id=open_request.reservation_id, cost_usd=str(cost)),
    )


def _record(context: ThreadContext, open_request: OpenRequest, reply: Reply) -> Step | None:
    retries = context.thread.retries
    is_cut = reply.reason == "max_tokens"
    if is_cut and not retries.escalated and _can_escalate(context, open_request):
        _end(
            context,
            open_request,
            reply.usage,
            model=reply.model,
            stop_reason="max_tokens",
            is_error=True,
        )
        return Continue("output_escalated")
    # a call whose input was cut off, or that a refusal discarded, does not count
    has_calls = reply.reason in ("tool_use", "end_turn")
    content = [part for part in reply.content if has_calls or not isinstance(part, ToolUse)]
    for part in content:
        speculative_call = (
            context.speculative_reads.matching_call(part)
            if context.speculative_reads and isinstance(part, ToolUse)
            else None
        )
        event_ids = (
            open_request.reply_announcer.event_ids(part)
            if speculative_call is None
            else (speculative_call.id,)
        )
        context.note(_as_payload(context, part), event_ids=event_ids)
    _end(context, open_request, reply.usage, model=reply.model, stop_reason=reply.reason)
    match reply.reason:
        case "refusal":
            return Ended("refusal")
        case "max_tokens" | "pause_turn" if retries.continued >= CONTINUATIONS:
            return Ended("output_truncated")
        case "max_tokens":
            return Continue("output_continued", CONTINUE_TEXT)
        case "pause_turn":
            return Continue("output_continued", RESUME_TEXT)
        case "tool_use" | "end_turn":
            return None


def _can_escalate(context: ThreadContext, open_request: OpenRequest) -> bool:
    return _output_cap(context, context.input_tokens(), is_escalated=True) > open_request.cap


def _as_payload(
    context: ThreadContext, part: TextBlock | Thinking | ToolUse
) -> events.KnownPayload:
    match part:
        case TextBlock():
            return events.AgentMessage(content=(part,))
        case Thinking(text=text, signature=signature):
            return events.AgentThinking(text=text, signature=signature)
        case ToolUse(name=name, input=args):
            if context.toolbox.is_client_tool(name):
                return events.AgentCustomToolUse(name=name, input=args)
            if name.startswith("mcp__"):
                server, _, tool_name = name.removeprefix("mcp__").partition("__")
                if (tool := context.toolbox.find(name)) is not None and tool.origin is not None:
                    server, tool_name = tool.origin.server, tool.origin.name
                return events.AgentMcpToolUse(
                    mcp_server_name=server, name=name, mcp_tool_name=tool_name, input=args
                )
            return events.AgentToolUse(name=name, input=args)


def _record_interrupted(context: ThreadContext, open_request: OpenRequest, text: str) -> None:
    """Record the part that had arrived; the loop reads the interrupt itself from the inbox next."""
    if text:
        context.note(
            events.AgentMessage(content=(TextBlock(text),)),
            event_ids=open_request.reply_announcer.first_message,
        )
    _end(
        context,
        open_request,
        _estimated_usage(context, text),
        model=context.prompt_prefix.model,
        stop_reason="interrupted",
        is_error=not text,
    )


def _estimated_usage(context: ThreadContext, text: str) -> events.Usage:
    """The usage of a call that broke off: the provider bills it but does not report it."""
    return events.Usage(
        input_tokens=context.input_tokens(),
        output_tokens=int(len(text.encode()) / context.facts.bytes_per_token),
    )


async def _recover(context: ThreadContext, open_request: OpenRequest, failed: ReplyFailed) -> Step:
    """Recovery steps: each is tried once or a few times, then the error ends the run."""
    error = failed.error
    _end(
        context,
        open_request,
        _estimated_usage(context, failed.text) if failed.text else events.Usage(),
        model=context.prompt_prefix.model,
        stop_reason=error.kind,
        is_error=True,
    )
    if error.kind in ("prompt_too_long", "media_too_large"):
        if await compact_after_overflow(context, media=error.kind == "media_too_large"):
            return Continue("reactive_compact_retry")
        return Ended("prompt_too_long", str(error))
    if failed.ended is not None:
        return failed.ended
    is_broken_stream = failed.has_begun and error.retryable and error.kind != "stalled"
    if is_broken_stream and context.thread.retries.broken_streams < BROKEN_STREAMS:
        return Continue("broken_stream_retry")
    is_later = can_reschedule(context, error)
    context.note(events.SessionFailed(error=error_detail(error, is_retried=is_later)))
    return Ended("rescheduled" if is_later else "model_error", str(error))
