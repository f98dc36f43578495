"""One turn: make room, ask the model, write down what it said; and what to do when it cannot."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from decimal import Decimal

import anyio
import msgspec

from mainspring.core import facts as fact
from mainspring.core import ids
from mainspring.core.content import TextBlock
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import ProviderFailed
from mainspring.core.events import (
    AgentCustomToolUse,
    AgentMcpToolUse,
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ErrorDetail,
    ModelRequestEnded,
    ModelRequestStarted,
    RetryStatus,
    SessionFailed,
    Usage,
)
from mainspring.core.model import FailedOver, Reply, Request, TextDelta, Thinking, ToolUse
from mainspring.harness.budget import status_block
from mainspring.harness.context.compact import make_room, shrink
from mainspring.harness.context.view import cache_break, view
from mainspring.harness.desk import Desk
from mainspring.harness.limits import affordable_output, reserve
from mainspring.harness.reasons import Continue, Ended, Step

OUTPUT_CAP = 8_000
ESCALATED_CAP = 64_000
CONTINUATIONS = 3
SHORTEST_REPLY = 500
GO_ON = (
    "Your last message was cut off at the output limit. Go on exactly where it stopped, without"
    " repeating anything, in smaller pieces."
)


@dataclass(frozen=True, slots=True)
class Interrupted:
    said: str
    """What had come by then."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request under way: what its end must refer to."""

    started_id: str
    reservation_id: str
    cap: int


async def take_turn(desk: Desk) -> Step | None:
    """Ask the model once. `None`: look at the thread again."""
    if (made := await make_room(desk)) is not None:
        return made
    tokens = desk.input_tokens()
    cap = _affordable(desk, tokens, _output_cap(desk, tokens))
    reserved = reserve(
        desk.account.spent, desk.limits, desk.facts, input_tokens=tokens, output_tokens=cap
    )
    if isinstance(reserved, Ended):
        return reserved
    asked = Asked(desk.writer.new_event_id(), desk.new_id(ids.RESERVATION), cap)
    if (refused := await desk.purse.reserve(asked.reservation_id, reserved)) is not None:
        return Ended("budget_reached", refused)
    step = await _ask(desk, asked, tokens, reserved)
    settled = desk.thread.last_settled
    assert settled is not None  # every way out of `_ask` settles, and a crash leaves it reserved
    await desk.purse.settle(asked.reservation_id, Decimal(settled.cost_usd))
    return step


async def _ask(desk: Desk, asked: Asked, tokens: int, reserved: Decimal) -> Step | None:
    thread = desk.thread
    status = status_block(desk.account.spent, desk.limits)
    if status is not None and status != thread.status:
        desk.note(fact.ContextStatus(text=status))
    if thread.prefix != desk.prefix.digest:
        await desk.writer.put_blob(desk.prefix.encoded, media_type="application/json")
    request_id = desk.new_id(ids.REQUEST)
    desk.note(
        fact.BudgetReserved(
            reservation_id=asked.reservation_id,
            cost_usd=str(reserved),
            input_tokens=tokens,
            output_tokens=asked.cap,
        )
    )
    desk.note(
        ModelRequestStarted(
            model=desk.prefix.model,
            request_id=request_id,
            estimated_input_tokens=tokens,
            max_tokens=asked.cap,
            prefix=desk.prefix.digest,
            cache_break=cache_break(thread, desk.prefix),
        ),
        event_ids=(asked.started_id,),
    )
    await desk.commit()
    request = view(thread, desk.prefix, max_tokens=asked.cap, request_id=request_id)
    answer = await _converse(desk, request)
    match answer:
        case Reply():
            return _record(desk, asked, answer)
        case Interrupted(said):
            return _record_interrupted(desk, asked, said)
        case ProviderFailed():
            return await _recover(desk, asked, answer)


def _output_cap(desk: Desk, tokens: int) -> int:
    wanted = ESCALATED_CAP if desk.thread.tries.escalated else OUTPUT_CAP
    return max(SHORTEST_REPLY, min(wanted, desk.facts.max_output, desk.facts.window - tokens))


def _affordable(desk: Desk, tokens: int, cap: int) -> int:
    """A small budget shortens the reply rather than refusing it, as long as it is worth asking."""
    allowed = affordable_output(
        desk.account.spent, desk.limits, desk.facts, input_tokens=tokens, output_tokens=cap
    )
    return allowed if allowed >= SHORTEST_REPLY else cap


# --- asking ----------------------------------------------------------------------------------


async def _converse(desk: Desk, request: Request) -> Reply | Interrupted | ProviderFailed:
    """Stream the reply, until it is whole, the user interrupts, or there will be none."""
    answer = await _stream(desk, request)
    if isinstance(answer, ProviderFailed) and answer.kind == "stalled" and request.stream:
        return await _stream(desk, msgspec.structs.replace(request, stream=False))
    return answer


async def _stream(desk: Desk, request: Request) -> Reply | Interrupted | ProviderFailed:
    said: list[str] = []
    answer: Reply | ProviderFailed | None = None
    async with anyio.create_task_group() as group:

        async def stop_when_interrupted() -> None:
            await desk.writer.hear("user.interrupt")
            group.cancel_scope.cancel()

        group.start_soon(stop_when_interrupted)
        try:
            async with aclosing(desk.model.stream(request)) as deltas:
                async for delta in deltas:
                    match delta:
                        case Reply():
                            answer = delta
                        case FailedOver():
                            _note_failover(desk, delta)
                        case TextDelta(text):
                            said.append(text)
                            desk.emit(delta)
                        case _:
                            desk.emit(delta)
        except ProviderFailed as failed:
            answer = failed
        group.cancel_scope.cancel()
    return answer or Interrupted("".join(said))


def _note_failover(desk: Desk, delta: FailedOver) -> None:
    desk.note(
        fact.ProviderFailedOver(
            from_model=delta.from_model, to_model=delta.to_model, reason=delta.reason
        ),
        fact.LoopContinued(reason="provider_failed_over"),
    )


# --- writing down ----------------------------------------------------------------------------


def _end(
    desk: Desk,
    asked: Asked,
    usage: Usage,
    *,
    model: str,
    stop_reason: str,
    is_error: bool = False,
) -> None:
    cost = desk.cost(usage, model)
    desk.note(
        ModelRequestEnded(
            model_request_start_id=asked.started_id,
            model_usage=usage,
            is_error=is_error,
            model=model,
            stop_reason=stop_reason,
            cost_usd=str(cost),
        ),
        fact.BudgetSettled(reservation_id=asked.reservation_id, cost_usd=str(cost)),
    )


def _record(desk: Desk, asked: Asked, reply: Reply) -> Step | None:
    tries = desk.thread.tries
    is_cut = reply.reason == "max_tokens"
    if is_cut and not tries.escalated and asked.cap < min(ESCALATED_CAP, desk.facts.max_output):
        _end(
            desk,
            asked,
            usage=reply.usage,
            model=reply.model,
            stop_reason="max_tokens",
            is_error=True,
        )
        return Continue("output_escalated")
    # a call whose input was cut off is not a call
    content = [part for part in reply.content if not (is_cut and isinstance(part, ToolUse))]
    desk.note(*(_as_payload(desk, part) for part in content))
    _end(desk, asked, reply.usage, model=reply.model, stop_reason=reply.reason)
    match reply.reason:
        case "refusal":
            return Ended("refusal")
        case "max_tokens" if tries.continued >= CONTINUATIONS:
            return Ended("output_truncated")
        case "max_tokens" | "pause_turn":
            return Continue("output_continued", GO_ON)
        case "tool_use" | "end_turn":
            return None


def _as_payload(desk: Desk, part: TextBlock | Thinking | ToolUse) -> KnownPayload:
    match part:
        case TextBlock():
            return AgentMessage(content=(part,))
        case Thinking(text=text, signature=signature):
            return AgentThinking(text=text, signature=signature)
        case ToolUse(name=name, input=given):
            if name in desk.custom_tools:
                return AgentCustomToolUse(name=name, input=given)
            if name.startswith("mcp__"):
                server = name.removeprefix("mcp__").partition("__")[0]
                return AgentMcpToolUse(mcp_server_name=server, name=name, input=given)
            return AgentToolUse(name=name, input=given)


def _record_interrupted(desk: Desk, asked: Asked, said: str) -> None:
    """Keep what was said; the interrupt itself is in the inbox and comes next."""
    if said:
        desk.note(AgentMessage(content=(TextBlock(said),)))
    usage = Usage(
        input_tokens=desk.input_tokens(),
        output_tokens=int(len(said.encode()) / desk.facts.bytes_per_token),
    )
    _end(
        desk,
        asked,
        usage,
        model=desk.prefix.model,
        stop_reason="interrupted",
        is_error=not said,
    )


# --- when there is no reply ------------------------------------------------------------------


async def _recover(desk: Desk, asked: Asked, failed: ProviderFailed) -> Step:
    """The ladder: each rung at most once or a few times, then the error is the answer."""
    _end(
        desk,
        asked,
        Usage(),
        model=desk.prefix.model,
        stop_reason=failed.kind,
        is_error=True,
    )
    if failed.kind in ("prompt_too_long", "media_too_large"):
        if await shrink(desk, media=failed.kind == "media_too_large"):
            return Continue("reactive_compact_retry")
        return Ended("prompt_too_long", str(failed))
    desk.note(SessionFailed(error=_detail(failed)))
    return Ended("model_error", str(failed))


def _detail(failed: ProviderFailed) -> ErrorDetail:
    kinds = {
        "overloaded": "model_overloaded_error",
        "rate_limited": "model_rate_limited_error",
        "billing": "billing_error",
    }
    status = RetryStatus(type="exhausted" if failed.retryable else "terminal")
    return ErrorDetail(
        type=kinds.get(failed.kind, "model_request_failed_error"),
        message=str(failed),
        retry_status=status,
    )
