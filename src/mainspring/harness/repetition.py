"""Going round in circles: a fold over calls and their results. One nudge, then stop.

A call counts as repeated at once if it also got the same result; with other results (a build that
is being waited for) it has to be repeated far more often. What the user says begins a new count.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.content import Block
from mainspring.core.envelope import AnyPayload
from mainspring.core.events import (
    AgentCustomToolUse,
    AgentMcpToolResult,
    AgentMcpToolUse,
    AgentToolResult,
    AgentToolUse,
    ModelRequestStarted,
    UserCustomToolResult,
    UserMessage,
    UserToolResult,
)
from mainspring.core.facts import LoopContinued

NUDGE = (
    "You are going in circles: the last steps repeat earlier ones and bring nothing new. Do not"
    " repeat them. Say what you were trying to find out, then try something different, or finish"
    " with what you have and name what is missing."
)

Due: TypeAlias = Literal["nudge", "stop"]

_encode = msgspec.json.Encoder(order="sorted").encode
_STEPS_KNOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    same_calls: int = 3
    """Same call, same result, in a row."""
    same_pairs: int = 2
    """A-B-A-B, same results."""
    patience: int = 4
    """How many times as often, when results differ."""
    stale_turns: int = 6
    """Turns in a row in which every call and its result had been seen before."""


TOLERANCE = Tolerance()


class Made(Struct, frozen=True, kw_only=True):
    """A call that was made, as hashes."""

    id: str
    call: str
    result: str | None = None


class Repetition(Struct, frozen=True, kw_only=True):
    recent: tuple[Made, ...] = ()
    known: tuple[str, ...] = ()
    """Calls with their results, the newest last."""
    is_turn_fresh: bool | None = None
    """Whether this turn brought anything new; None before its first result."""
    stale_turns: int = 0
    has_nudged: bool = False
    due: Due | None = None
    """What the loop has to do now: tell the model `NUDGE`, or end with `loop_detected`."""


def fold(
    state: Repetition, event_id: str, payload: AnyPayload, tolerance: Tolerance = TOLERANCE
) -> Repetition:
    """The state after one more event of a thread."""
    match payload:
        case UserMessage():
            return Repetition()
        case LoopContinued(detail=detail) if detail == NUDGE:
            return Repetition(known=state.known, has_nudged=True)
        case AgentToolUse(name=name, input=input_) | AgentCustomToolUse(name=name, input=input_):
            return _called(state, Made(id=event_id, call=_digest(name, input_)), tolerance)
        case AgentMcpToolUse(mcp_server_name=server, name=name, input=input_):
            made = Made(id=event_id, call=_digest(f"{server}/{name}", input_))
            return _called(state, made, tolerance)
        case (
            AgentToolResult(tool_use_id=id_, content=content, is_error=is_error)
            | AgentMcpToolResult(mcp_tool_use_id=id_, content=content, is_error=is_error)
            | UserCustomToolResult(custom_tool_use_id=id_, content=content, is_error=is_error)
            | UserToolResult(tool_use_id=id_, content=content, is_error=is_error)
        ):
            return _settled(state, id_, _digest(is_error, content), tolerance)
        case ModelRequestStarted(purpose=None):
            return _turned(state, tolerance)
        case _:
            return state


def _called(state: Repetition, made: Made, tolerance: Tolerance) -> Repetition:
    most = max(tolerance.same_calls, 2 * tolerance.same_pairs) * tolerance.patience
    return replace(state, recent=(*state.recent, made)[-most:])


def _settled(state: Repetition, call_id: str, result: str, tolerance: Tolerance) -> Repetition:
    recent = tuple(
        replace(made, result=result) if made.id == call_id and made.result is None else made
        for made in state.recent
    )
    learned = next((_step(made) for made in recent if made.id == call_id), call_id)
    is_new = learned not in state.known
    known = tuple(step for step in state.known if step != learned)
    state = replace(
        state,
        recent=recent,
        known=(*known, learned)[-_STEPS_KNOWN:],
        is_turn_fresh=bool(state.is_turn_fresh) or is_new,
    )
    return _judged(state, is_circling(recent, tolerance))


def _turned(state: Repetition, tolerance: Tolerance) -> Repetition:
    if state.is_turn_fresh is None:
        return state
    stale = 0 if state.is_turn_fresh else state.stale_turns + 1
    state = replace(state, is_turn_fresh=None, stale_turns=stale)
    return _judged(state, stale >= tolerance.stale_turns)


def _judged(state: Repetition, is_stuck: bool) -> Repetition:
    if not is_stuck or state.due is not None:
        return state
    return replace(state, due="stop" if state.has_nudged else "nudge")


def is_circling(recent: tuple[Made, ...], tolerance: Tolerance = TOLERANCE) -> bool:
    """Whether the settled calls end in one call, or two in turn, over and over."""
    settled = tuple(made for made in recent if made.result is not None)
    calls = [made.call for made in settled]
    steps = [_step(made) for made in settled]
    return any(
        _repeats(steps, period, times) or _repeats(calls, period, times * tolerance.patience)
        for period, times in ((1, tolerance.same_calls), (2, tolerance.same_pairs))
    )


def _step(made: Made) -> str:
    return f"{made.call} {made.result}"


def _repeats(steps: list[str], period: int, times: int) -> bool:
    size = period * times
    if len(steps) < size:
        return False
    tail = steps[-size:]
    return tail == tail[:period] * times


def _digest(kind: object, content: dict[str, object] | tuple[Block, ...]) -> str:
    return hashlib.sha256(_encode((kind, content))).hexdigest()[:16]
