"""Detects an agent that repeats itself: a fold over calls and their results. One nudge, then stop.

A call counts as repeated only if it also got the same result. An agent may poll: a call whose
results change is not repeated, and a call that waits (`sleep 30`, a tool `wait_for_build`) starts
a new count, as does a message of the user.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import events
from mainspring.core.content import Block
from mainspring.core.envelope import AnyPayload

NUDGE = (
    "You are going in circles: the last steps repeat earlier ones and bring nothing new. Do not"
    " repeat them. Say what you were trying to find out, then try something different, or finish"
    " with what you have and name what is missing."
)

LOOP_ERROR = "tool_use_limit_reached_error"
"""The error type of the Managed Agents API for a turn that ends because of its tool calls."""

RepetitionAction: TypeAlias = Literal["nudge", "stop"]

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_WAITING_NAMES = frozenset(
    f(word) for word in ("sleep", "wait", "poll", "delay") for f in (str, str.title, str.upper)
)
_WAITING_COMMAND = re.compile(r"(?:^|[\s;&|(])(?:sleep|wait|inotifywait|usleep)(?:[\s;&|)]|$)")
_MAX_COMMAND = 10_000  # characters compared

_encode = msgspec.json.Encoder(order="sorted").encode
_MAX_KNOWN_STEPS = 200  # remembered of a thread
_MIN_RECENT = 16
"""The number of calls to keep until they have results: a turn may make many at once."""


class Tolerance(Struct, frozen=True, kw_only=True):
    same_calls: int = 3
    """Limit for the same call with the same result in a row."""
    same_pairs: int = 2
    """Limit for two alternating calls (A-B-A-B) with the same results."""
    stale_turns: int = 6
    """Limit for turns in a row in which every call and its result had occurred before."""
    waits: int = 200
    """Limit for calls that wait; further ones count like other calls."""


TOLERANCE = Tolerance()


class CallHash(Struct, frozen=True, kw_only=True):
    """A past call and its result, as hashes."""

    id: str
    call: str
    result: str | None = None


class Repetition(Struct, frozen=True, kw_only=True):
    recent: tuple[CallHash, ...] = ()
    known: tuple[str, ...] = ()
    """Calls with their results, the newest last."""
    is_turn_fresh: bool | None = None
    """Whether this turn had anything new; `None` before its first result."""
    stale_turns: int = 0
    waits: int = 0
    """The number of calls that waited."""
    has_nudged: bool = False
    due: RepetitionAction | None = None
    """The next action of the loop: send the model `NUDGE`, or end with `loop_detected`."""


RELEVANT = frozenset[type](
    (
        events.AgentCustomToolUse,
        events.AgentMcpToolResult,
        events.AgentMcpToolUse,
        events.AgentToolResult,
        events.AgentToolUse,
        events.LoopContinued,
        events.ModelRequestStarted,
        events.UserCustomToolResult,
        events.UserMessage,
        events.UserToolResult,
    )
)
"""Types of events that may change the state."""


def fold(
    state: Repetition, event_id: str, payload: AnyPayload, tolerance: Tolerance = TOLERANCE
) -> Repetition:
    """The state after one more event of a thread."""
    match payload:
        case events.UserMessage():
            return Repetition()
        case events.LoopContinued(detail=detail) if detail == NUDGE:
            return Repetition(known=state.known, has_nudged=True)
        case (
            events.AgentToolUse(name=name, input=input_)
            | events.AgentCustomToolUse(name=name, input=input_)
            | events.AgentMcpToolUse(name=name, input=input_)
        ) if state.waits < tolerance.waits and _is_wait(name, input_):
            return replace(state, recent=(), stale_turns=0, waits=state.waits + 1)
        case (
            events.AgentToolUse(name=name, input=input_)
            | events.AgentCustomToolUse(name=name, input=input_)
        ):
            return _add_call(state, CallHash(id=event_id, call=_digest(name, input_)), tolerance)
        case events.AgentMcpToolUse(mcp_server_name=server, name=name, input=input_):
            call_hash = CallHash(id=event_id, call=_digest(f"{server}/{name}", input_))
            return _add_call(state, call_hash, tolerance)
        case (
            events.AgentToolResult(tool_use_id=id_, content=content, is_error=is_error)
            | events.AgentMcpToolResult(mcp_tool_use_id=id_, content=content, is_error=is_error)
            | events.UserCustomToolResult(
                custom_tool_use_id=id_, content=content, is_error=is_error
            )
            | events.UserToolResult(tool_use_id=id_, content=content, is_error=is_error)
        ):
            return _add_result(state, id_, _digest(is_error, content), tolerance)
        case events.ModelRequestStarted(purpose=None):
            return _end_turn(state, tolerance)
        case _:
            return state


def _add_call(state: Repetition, call_hash: CallHash, tolerance: Tolerance) -> Repetition:
    max_recent = max(tolerance.same_calls, 2 * tolerance.same_pairs, _MIN_RECENT)
    return replace(state, recent=(*state.recent, call_hash)[-max_recent:])


def _add_result(state: Repetition, call_id: str, result: str, tolerance: Tolerance) -> Repetition:
    recent = tuple(
        replace(call_hash, result=result)
        if call_hash.id == call_id and call_hash.result is None
        else call_hash
        for call_hash in state.recent
    )
    step = next((_step(call_hash) for call_hash in recent if call_hash.id == call_id), call_id)
    is_new = step not in state.known
    other_steps = tuple(item for item in state.known if item != step)
    state = replace(
        state,
        recent=recent,
        known=(*other_steps, step)[-_MAX_KNOWN_STEPS:],
        is_turn_fresh=bool(state.is_turn_fresh) or is_new,
    )
    return _with_action(state, is_circling(recent, tolerance))


def _end_turn(state: Repetition, tolerance: Tolerance) -> Repetition:
    if state.is_turn_fresh is None:
        return state
    stale = 0 if state.is_turn_fresh else state.stale_turns + 1
    state = replace(state, is_turn_fresh=None, stale_turns=stale)
    return _with_action(state, stale >= tolerance.stale_turns)


def _with_action(state: Repetition, is_stuck: bool) -> Repetition:
    if not is_stuck or state.due is not None:
        return state
    return replace(state, due="stop" if state.has_nudged else "nudge")


def is_circling(recent: tuple[CallHash, ...], tolerance: Tolerance = TOLERANCE) -> bool:
    """Whether the settled calls end with one call, or two alternating ones, over and over."""
    steps = [_step(item) for item in recent if item.result is not None]
    for period, times in ((1, tolerance.same_calls), (2, tolerance.same_pairs)):
        tail = steps[-period * times :]
        if len(tail) == period * times and tail == tail[:period] * times:
            return True
    return False


def _is_wait(name: str, args: Mapping[str, object]) -> bool:
    """Whether a call waits, by the name of the tool or by its shell command."""
    command = args.get("command")
    is_shell_wait = isinstance(command, str) and _WAITING_COMMAND.search(command[:_MAX_COMMAND])
    return bool(is_shell_wait) or any(word in _WAITING_NAMES for word in _WORDS.findall(name))


def _step(call_hash: CallHash) -> str:
    return f"{call_hash.call} {call_hash.result}"


def _digest(kind: object, content: dict[str, object] | tuple[Block, ...]) -> str:
    return hashlib.sha256(_encode((kind, content))).hexdigest()[:16]
