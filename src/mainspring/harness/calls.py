"""Tool calls of a turn: find, check, authorize, run, settle. Order kept, neighbours in parallel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import anyio
import msgspec

from mainspring.core import facts as fact
from mainspring.core.content import BlobBlock, Block, TextBlock, plain_text
from mainspring.core.events import AgentMcpToolResult, AgentToolResult
from mainspring.core.model import INVALID_JSON
from mainspring.core.tool import Call, Outcome, Tool, Traits
from mainspring.harness.desk import Desk
from mainspring.harness.interruption import until_interrupted
from mainspring.harness.limits import calls_over
from mainspring.harness.reasons import Continue, Ended, Step
from mainspring.harness.thread import OpenCall
from mainspring.log.background import unwrapped

UNKNOWN = (
    "The system stopped while this call ran. Whether it took effect is not known: look before you"
    " do it again."
)

FOREIGN = (
    "This call was under way in the session that this one was forked from; what came of it is not"
    " known here."
)
TOO_MANY = "Not done: the limit on tool calls is reached. Finish with what you have."

_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class Ready:
    """May run now."""

    call: OpenCall
    tool: Tool
    traits: Traits


@dataclass(frozen=True, slots=True)
class Waiting:
    """For a person or a client."""

    call: OpenCall


@dataclass(frozen=True, slots=True)
class Answered:
    """Has its outcome without running."""

    call: OpenCall
    outcome: Outcome


Plan: TypeAlias = Ready | Waiting | Answered


async def run_round(desk: Desk) -> Step | None:
    """Settle the newest reply's calls, as far as they can be."""
    asked = list(desk.thread.round)
    allowed = asked[: len(asked) - calls_over(desk.account.spent, desk.limits)]
    plans = [
        await _plan(desk, call) if call.id in allowed or call.started else _refused(call, TOO_MANY)
        for call in desk.thread.unsettled()
    ]
    for plan in plans:
        if isinstance(plan, Answered):
            settle(desk, plan.call, plan.outcome)
    for group in _groups(plans):
        if await _run_group(desk, group):
            return None  # the loop takes the interrupt in, and settles what is open
    waiting = tuple(plan.call.id for plan in plans if isinstance(plan, Waiting))
    if waiting:
        return Ended("requires_action", waiting_for=waiting)
    return await desk.gates.after_round(desk.thread) or Continue("next_turn")


def _groups(plans: Sequence[Plan]) -> list[list[Ready]]:
    """Neighbours that are all safe together; any other alone. Nothing overtakes what waits."""
    groups: list[list[Ready]] = []
    for plan in plans:
        if isinstance(plan, Waiting):
            break
        if isinstance(plan, Answered):
            continue
        alone = not plan.traits.concurrent
        if alone or not groups or not groups[-1][-1].traits.concurrent:
            groups.append([plan])
        else:
            groups[-1].append(plan)
    return groups


async def _plan(desk: Desk, call: OpenCall) -> Plan:
    if call.kind == "custom":
        return Waiting(call)
    if call.is_foreign:
        return Answered(call, Outcome.text(FOREIGN, ok=False))
    tool = desk.tools.get(call.name)
    if call.started:
        return await _resolve_doubt(desk, call, tool)
    if tool is None:
        known = ", ".join(sorted(desk.tools)) or "none"
        return _refused(call, f"There is no tool {call.name!r}. There are: {known}.")
    if (raw := call.input.get(INVALID_JSON)) is not None:
        return _refused(call, f"The input is not a JSON object, so nothing was done: {raw!s:.200}")
    if wrong := tool.invalid(call.input):
        return _refused(call, wrong)
    return await _authorize(desk, call, tool, tool.traits(call.input))


async def _authorize(desk: Desk, call: OpenCall, tool: Tool, traits: Traits) -> Plan:
    decided = call.decision
    reason = call.reason
    if decided is None:
        decision = await desk.gates.authorize(_call(desk, call), tool, traits)
        decided, reason = decision.decision, decision.reason
        desk.note(
            fact.ToolCallAuthorized(
                tool_use_id=call.id,
                decision=decision.decision,
                gate=decision.gate,
                rule=decision.rule,
                reason=decision.reason,
                call_hash=call_hash(call),
            )
        )
    if decided == "ask" and call.answer is not None:
        decided, reason = call.answer.result, call.answer.deny_message
        desk.note(
            fact.ToolCallAuthorized(
                tool_use_id=call.id,
                decision=decided,
                gate="person",
                reason=reason,
                call_hash=call_hash(call),
            )
        )
    if decided == "allow":
        return Ready(call, tool, traits)
    if decided == "ask":
        return Waiting(call)
    return _refused(call, f"Not allowed: {reason or 'the permission rules deny it'}.")


async def _resolve_doubt(desk: Desk, call: OpenCall, tool: Tool | None) -> Plan:
    """It was started, and something came before its result."""
    if tool is None:
        return Answered(call, Outcome.text(UNKNOWN, ok=False))
    traits = tool.traits(call.input)
    policy = call.in_doubt or traits.in_doubt
    if policy == "probe" and tool.probe is not None:
        found = await tool.probe(_call(desk, call))
        return Ready(call, tool, traits) if found is None else Answered(call, found)
    if policy == "retry":
        return Ready(call, tool, traits)
    if policy == "ask":
        if call.answer is None:
            return Waiting(call)
        if call.answer.result == "allow":
            return Ready(call, tool, traits)
    return Answered(call, Outcome.text(UNKNOWN, ok=False))


def _refused(call: OpenCall, why: str) -> Answered:
    return Answered(call, Outcome.text(why, ok=False))


def call_hash(call: OpenCall) -> str:
    """Of the exact call that a gate judged."""
    return hashlib.sha256(_ENCODER.encode((call.name, call.input))).hexdigest()


def idempotency_key(session_id: str, call: OpenCall) -> str:
    """The same for every attempt at this call, and for no other."""
    whole = (session_id, call.id, call.name, call.input)
    return hashlib.sha256(_ENCODER.encode(whole)).hexdigest()


def _call(desk: Desk, call: OpenCall) -> Call:
    return Call(
        id=call.id,
        name=call.name,
        input=call.input,
        idempotency_key=call.started or idempotency_key(desk.writer.session_id, call),
        session_id=desk.writer.session_id,
        thread_id=desk.thread.id,
    )


async def _run_group(desk: Desk, group: Sequence[Ready]) -> bool:
    """Run calls together; True if an interrupt stopped those that can be stopped."""
    for ready in group:
        desk.note(
            fact.ToolCallStarted(
                tool_use_id=ready.call.id,
                idempotency_key=ready.call.started
                or idempotency_key(desk.writer.session_id, ready.call),
                attempt=ready.call.attempts + 1,
            )
        )
    await desk.commit()
    left = len(group)

    async def run(ready: Ready) -> None:
        nonlocal left
        outcome = await ready.tool.run(_call(desk, ready.call))
        settle(desk, ready.call, await _capped(desk, outcome, ready.traits.max_chars))
        left -= 1
        if left:
            await desk.commit()  # the last one is committed with what comes next

    async def run_all(calls: Sequence[Ready]) -> None:
        async with anyio.create_task_group() as together:
            for ready in calls:
                together.start_soon(run, ready)

    patient = [ready for ready in group if ready.traits.on_interrupt == "block"]
    stoppable = [ready for ready in group if ready.traits.on_interrupt == "cancel"]
    is_interrupted = False
    with unwrapped():
        async with anyio.create_task_group() as both:  # losing the lease stops them all
            both.start_soon(run_all, patient)
            if stoppable:
                is_interrupted = await until_interrupted(desk, partial(run_all, stoppable))
    return is_interrupted


def settle(desk: Desk, call: OpenCall, outcome: Outcome) -> None:
    """Give a call its one result."""
    if call.name.startswith("mcp__"):
        desk.note(
            AgentMcpToolResult(
                mcp_tool_use_id=call.id, content=outcome.content, is_error=not outcome.ok
            )
        )
    else:
        desk.note(
            AgentToolResult(tool_use_id=call.id, content=outcome.content, is_error=not outcome.ok)
        )


async def _capped(desk: Desk, outcome: Outcome, max_chars: int) -> Outcome:
    """A result over its cap goes to a blob; the model reads the beginning, the end and where."""
    text = plain_text(outcome.content)
    if len(text) <= max_chars:
        return outcome
    kept = await desk.writer.put_blob(text.encode(), media_type="text/plain")
    half = max_chars // 2
    preview = (
        f"{text[:half]}\n[... {len(text) - 2 * half} characters left out; history_read shows"
        f" the whole of blob {kept.hash} ...]\n{text[-half:]}"
    )
    media: list[Block] = [
        block for block in outcome.content if not isinstance(block, TextBlock | BlobBlock)
    ]
    block = BlobBlock(preview=preview, hash=kept.hash, size=kept.size, media_type=kept.media_type)
    return Outcome((block, *media), outcome.ok, outcome.details)
