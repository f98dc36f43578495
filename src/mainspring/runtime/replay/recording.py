"""Reads a session's log as the script of a replay: all inputs and decisions, and when they came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mainspring.core import events
from mainspring.core.content import TextBlock, plain_text
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.model import FailedOver, Reply, ToolSpec
from mainspring.harness.context.conversation_digest import DIGEST_HEADING
from mainspring.harness.context.working_state import WORKING_STATE
from mainspring.harness.context.xray import ModelCall
from mainspring.harness.state.open_call import CallResult, call_id_of
from mainspring.harness.state.repetition import LOOP_ERROR
from mainspring.harness.state.thread import END_ONLY
from mainspring.harness.stop_reasons import PROMPT_TOO_LONG_ERROR
from mainspring.harness.tool_calls.crash_recovery import INTERRUPTED_TEXT
from mainspring.harness.tool_calls.effect_snapshots import SNAPSHOT_FAILED
from mainspring.harness.tool_calls.tool_pipeline import APPROVAL_VOID_REASON
from mainspring.runtime.replay.recorded_call import CallEnding, CallFact, RecordedCall

CLIENT_EVENTS = (
    events.UserMessage,
    events.UserInterrupt,
    events.UserToolConfirmation,
    events.UserCustomToolResult,
    events.UserToolResult,
    events.UserDefineOutcome,
    events.SystemMessage,
)
CALL_EVENTS = (events.AgentToolUse, events.AgentMcpToolUse, events.AgentCustomToolUse)
LIMIT_REASONS = ("max_turns", "budget_reached")
FEEDBACK_REASONS = ("stop_hook_feedback", "outcome_revision", "budget_continuation")

_NON_MODEL_ERRORS = frozenset({SNAPSHOT_FAILED, LOOP_ERROR, PROMPT_TOO_LONG_ERROR})


class ReplayProgress(NamedTuple):
    """The progress of a run, in units that all runs of the same session share."""

    ended: int = 0
    """The number of ended model calls."""
    settled: int = 0
    """The number of settled tool calls."""
    idle: int = 0
    """The number of ended runs."""

    def has_reached(self, due: ReplayProgress) -> bool:
        return all(count >= needed for count, needed in zip(self, due, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalInput:
    """An input from outside, and when it came."""

    payload: AnyPayload
    due: ReplayProgress
    stops: bool
    """Whether it is an interrupt that stopped a running call: the replayed call sends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookContext:
    """Context that a hook added for the model, and when."""

    payload: events.ContextAdded
    due: ReplayProgress
    messages: int
    """The number of user messages before it."""

    @property
    def event(self) -> str:
        """The event that the hook got."""
        return self.payload.source.removesuffix(" hook")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCall:
    """A model call outside the conversation."""

    end: events.ModelRequestEnded | None
    summary: str | None


@dataclass(slots=True)
class Recording:
    model_calls: Sequence[ModelCall]
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])
    places: dict[str, int] = field(default_factory=dict[str, int])
    """The positions of calls, by their ids."""
    inputs: list[ExternalInput] = field(default_factory=list[ExternalInput])
    sides: list[SideCall] = field(default_factory=list[SideCall])
    ends: list[tuple[ReplayProgress, str | None]] = field(
        default_factory=list[tuple[ReplayProgress, "str | None"]]
    )
    """When and why each run ended."""
    feedback: list[tuple[ReplayProgress, events.LoopContinued]] = field(
        default_factory=list[tuple[ReplayProgress, events.LoopContinued]]
    )
    hook_context: list[HookContext] = field(default_factory=list[HookContext])
    messages: list[str] = field(default_factory=list[str])
    """The ids of the user's messages, in order."""
    withheld: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    """The ids of messages that hooks withheld from the model, and why."""
    switches: dict[int, list[FailedOver]] = field(default_factory=dict[int, list[FailedOver]])
    """Failovers, by the number of the call."""
    errors: dict[int, str] = field(default_factory=dict[int, str])
    statuses: dict[int, str] = field(default_factory=dict[int, str])
    """Status blocks, by the index of the call whose request they end."""

    def call_number(self, call_id: str) -> int | None:
        """The index of the call, from 0."""
        return self.places.get(call_id)

    def add(self, call: RecordedCall) -> None:
        self.places[call.id] = len(self.calls)
        self.calls.append(call)

    def specs(self) -> list[ToolSpec]:
        """All tool definitions that the model had at any time; the last one of each tool."""
        by_name = {spec.name: spec for shot in self.model_calls for spec in shot.request.tools}
        return list(by_name.values())

    def reply(self, call: ModelCall) -> Reply:
        """The reply to repeat; an empty one if there was none, or it was discarded."""
        if call.reply is not None:
            return call.reply
        end = call.end
        return Reply(
            content=(),
            usage=events.Usage() if end is None else end.model_usage,
            reason="max_tokens",
            model=(end.model if end is not None else None) or call.request.model,
        )


def read_recording(
    log: Sequence[Event], *, thread_id: str, model_calls: Sequence[ModelCall]
) -> Recording:
    """Read the events of one thread; ignore the others."""
    recording = Recording(model_calls)
    thread = [event for event in log if event.thread_id == thread_id]
    progress, turns = ReplayProgress(), 0
    for index, event in enumerate(thread):
        if isinstance(event.payload, events.ContextStatus):
            recording.statuses[turns] = event.payload.text
        turns += is_turn(event.payload)
        _read(recording, thread, index, progress)
        progress = advance(progress, event.payload)
    return recording


def advance(progress: ReplayProgress, payload: AnyPayload) -> ReplayProgress:
    match payload:
        case events.ModelRequestEnded(purpose=purpose) if purpose not in END_ONLY:
            return progress._replace(ended=progress.ended + 1)
        case events.StatusIdle():
            return progress._replace(idle=progress.idle + 1)
        case _ if isinstance(payload, CallResult):
            return progress._replace(settled=progress.settled + 1)
        case _:
            return progress


def _read(recording: Recording, log: Sequence[Event], index: int, progress: ReplayProgress) -> None:
    payload = log[index].payload
    if isinstance(payload, CLIENT_EVENTS):
        recording.inputs.append(
            ExternalInput(
                payload=payload,
                due=progress,
                stops=isinstance(payload, events.UserInterrupt) and _stops(log, index),
            )
        )
    _read_hooks(recording, log[index], progress)
    match payload:
        case events.ModelRequestStarted(purpose=str()):
            recording.sides.append(_side(log, index))
        case events.StatusIdle(reason=reason):
            recording.ends.append((progress, reason))
        case events.LoopContinued(reason=reason) if reason in FEEDBACK_REASONS:
            recording.feedback.append((progress, payload))
        case events.ProviderFailedOver(from_model=first, to_model=second, reason=reason):
            switch = FailedOver(from_model=first, to_model=second, reason=reason)
            recording.switches.setdefault(_turns(log, index), []).append(switch)
        case events.SessionFailed(error=error) if _is_of_model(error):
            recording.errors[_turns(log, index)] = error.message
        case _:
            _read_call(recording, log, index)


def _is_of_model(error: events.ErrorDetail) -> bool:
    is_final = error.retry_status.type != "retrying"
    return is_final and error.type not in _NON_MODEL_ERRORS and error.mcp_server_name is None


def _read_hooks(recording: Recording, event: Event, progress: ReplayProgress) -> None:
    match event.payload:
        case events.UserMessage():
            recording.messages.append(event.id)
        case events.MessageWithheld(event_id=event_id, reason=reason):
            recording.withheld[event_id] = reason
        case events.ContextAdded(source=source) if source != WORKING_STATE:  # the loop makes it
            message_count = len(recording.messages)
            recording.hook_context.append(
                HookContext(due=progress, messages=message_count, payload=event.payload)
            )
        case _:
            pass


def _read_call(recording: Recording, log: Sequence[Event], index: int) -> None:
    payload = log[index].payload
    if isinstance(payload, CALL_EVENTS):
        is_custom = isinstance(payload, events.AgentCustomToolUse)
        recording.add(
            RecordedCall(
                id=log[index].id, name=payload.name, input=payload.input, is_custom=is_custom
            )
        )
    elif isinstance(payload, CallResult):
        call = _call(recording, call_id_of(payload) or "")
        if call is not None and call.content is None:
            call.content, call.is_error = payload.content, payload.is_error
            call.facts = _facts(log, index)
    elif isinstance(
        payload, events.ToolCallAuthorized | events.ToolCallStarted | events.ToolCallInDoubt
    ):
        call = _call(recording, payload.tool_use_id)
        if call is not None:
            _read_step(call, log, index, payload)


def _read_step(
    call: RecordedCall,
    log: Sequence[Event],
    index: int,
    payload: events.ToolCallAuthorized | events.ToolCallStarted | events.ToolCallInDoubt,
) -> None:
    match payload:
        case events.ToolCallAuthorized(gate="person"):
            pass  # follows from the answer, which is an input itself
        case events.ToolCallAuthorized(decision="ask", reason=reason) if (
            reason == APPROVAL_VOID_REASON
        ):
            call.voids += 1
        case events.ToolCallAuthorized():
            call.judge(payload)
        case events.ToolCallStarted():
            call.call_endings.append(_ending(log, index, call.id))
            call.is_parallel = call.is_parallel or _is_parallel(log, index)
        case events.ToolCallInDoubt(policy=policy):
            call.policy = policy


def _call(recording: Recording, call_id: str) -> RecordedCall | None:
    index = recording.call_number(call_id)
    return None if index is None else recording.calls[index]


def _turns(log: Sequence[Event], index: int) -> int:
    """The number of model calls of the conversation that were started."""
    return sum(is_turn(event.payload) for event in log[:index])


def is_turn(payload: AnyPayload) -> bool:
    """Whether it starts a model call that can be repeated. Imported calls cannot, since their
    requests are unknown."""
    return (
        isinstance(payload, events.ModelRequestStarted)
        and payload.purpose is None
        and payload.prefix is not None
    )


def _stops(log: Sequence[Event], index: int) -> bool:
    """Whether this interrupt ended a model call or a tool call."""
    for event in reversed(log[:index]):
        match event.payload:
            case events.ModelRequestEnded(stop_reason=reason, purpose=purpose):
                if purpose not in END_ONLY:
                    return reason == "interrupted"
            case events.ToolCallStarted(tool_use_id=call_id):
                return _ending(log, log.index(event), call_id) == "interrupted"
            case events.StatusIdle() | events.StatusRunning():
                return False
            case _:
                pass
    return False


def _ending(log: Sequence[Event], index: int, call_id: str) -> CallEnding:
    for event in log[index + 1 :]:
        match event.payload:
            case events.SessionWoken():
                return "crashed"
            case payload if isinstance(payload, CallResult) and call_id_of(payload) == call_id:
                text = plain_text(payload.content)
                return "interrupted" if payload.is_error and text == INTERRUPTED_TEXT else "settled"
            case _:
                pass
    return "crashed"


def _facts(log: Sequence[Event], index: int) -> tuple[CallFact, ...]:
    """The effects of a call that the loop depends on, written just before its result."""
    facts: list[CallFact] = []
    for event in reversed(log[:index]):
        if isinstance(event.payload, CallResult | events.ToolCallStarted):
            break
        if isinstance(event.payload, CallFact):
            facts.insert(0, event.payload)
    return tuple(facts)


def _is_parallel(log: Sequence[Event], index: int) -> bool:
    """Whether two neighbouring calls ran at the same time."""
    neighbours = [log[i].payload for i in (index - 1, index + 1) if 0 <= i < len(log)]
    return any(isinstance(payload, events.ToolCallStarted) for payload in neighbours)


def _side(log: Sequence[Event], index: int) -> SideCall:
    end = next(
        (
            event.payload
            for event in log[index + 1 :]
            if isinstance(event.payload, events.ModelRequestEnded)
            and event.payload.model_request_start_id == log[index].id
        ),
        None,
    )
    if end is None or end.stop_reason == "abandoned":
        return SideCall(end=None, summary=None)
    summary = None if end.is_error else _summary(log[index + 1 :])
    return SideCall(end=end, summary=summary)


def _summary(log: Iterable[Event]) -> str | None:
    """The text that the model wrote: the summary, with the working state extracted from it."""
    state = ""
    for event in log:
        match event.payload:
            case events.ContextAdded(source=source, text=text) if source == WORKING_STATE:
                state = text.partition("\n")[2]
            case events.ContextCompacted(layer="auto", summary=str(summary)):
                return f"{summary.removeprefix(DIGEST_HEADING)}\n{state}".strip()
            case _:
                pass
    return None


def side_reply(side: SideCall, model: str) -> Reply:
    end = side.end
    return Reply(
        content=(TextBlock(side.summary),) if side.summary else (),
        usage=events.Usage() if end is None else end.model_usage,
        reason="end_turn",
        model=(end.model if end is not None else None) or model,
    )
