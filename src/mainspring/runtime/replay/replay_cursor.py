"""The position of a replay in a recording: which inputs come next, and where it has diverged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import unified_diff

import msgspec

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.core.events import KnownPayload
from mainspring.core.hook import HookEvent, HookResult
from mainspring.core.model import Request
from mainspring.harness.context.working_state import WORKING_STATE
from mainspring.harness.context.xray import ModelCall, canonical_request, request_lines
from mainspring.harness.state.open_call import CallResult, call_id_of
from mainspring.runtime.replay.recorded_call import RecordedCall
from mainspring.runtime.replay.recording import (
    CALL_EVENTS,
    CLIENT_EVENTS,
    HookContext,
    Recording,
    ReplayProgress,
    advance,
    is_turn,
)

HOOK_STOPPED = "hook_stopped"
_DIFF_LINES = 16  # of the first difference


class RecordedCrash(BaseException):
    """The recorded process died here. A BaseException, so that no tool error handler catches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where and how a run diverged from the recording."""

    call: int
    """The model call, counted from 1."""
    what: str
    diff: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"call {self.call}: {self.what}", *self.diff])


@dataclass(slots=True, kw_only=True)
class ReplayCursor:
    """The recording and the position in it, which is derived from the run's own log."""

    recording: Recording
    interrupt: Callable[[], Awaitable[object]]
    """Interrupts the replayed session."""
    repeats_budget: bool
    """Whether recorded budget decisions are repeated; otherwise the agent's own limits apply."""
    replay_progress: ReplayProgress = field(default_factory=ReplayProgress)
    begun: int = 0
    sides: int = 0
    inputs_sent: int = 0
    is_beside: bool = False
    """Whether the running model call is outside the conversation."""
    calls: dict[str, int] = field(default_factory=dict[str, int])
    """The ids of this run's calls, with the recorded call of each."""
    open: list[str] = field(default_factory=list[str])
    """The ids of calls without a result yet."""
    answers: dict[str, int] = field(default_factory=dict[str, int])
    """The number of a person's answers to each call."""
    added: int = 0
    prompts: int = 0
    """The number of user messages that hooks have seen."""
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    divergence: Divergence | None = None

    def restart(self, log: Iterable[Event]) -> None:
        """Start over at the end of this log."""
        self.replay_progress = ReplayProgress()
        self.begun = self.sides = self.inputs_sent = self.added = self.prompts = 0
        self.calls, self.open, self.attempts, self.answers = {}, [], {}, {}
        for event in log:
            self.observe(event)
            self.prompts += isinstance(event.payload, events.UserMessage)

    def observe(self, event: Event) -> None:
        payload = event.payload
        self.replay_progress = advance(self.replay_progress, payload)
        self._observe_call(event)
        if isinstance(payload, events.ContextAdded):
            self.added += payload.source != WORKING_STATE
        elif isinstance(payload, CLIENT_EVENTS):
            self.inputs_sent += 1
        elif isinstance(payload, events.ModelRequestStarted):
            self.begun += is_turn(payload)
            self.is_beside = payload.purpose is not None
            self.sides += self.is_beside

    def _observe_call(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, CALL_EVENTS):
            self.calls[event.id] = len(self.calls)
            self.open.append(event.id)
        elif isinstance(payload, CallResult):
            self.open = [item for item in self.open if item != call_id_of(payload)]
        elif isinstance(payload, events.ToolCallStarted):
            self.attempts[payload.tool_use_id] = self.attempts.get(payload.tool_use_id, 0) + 1
        elif isinstance(payload, events.UserToolConfirmation):
            self.answers[payload.tool_use_id] = self.answers.get(payload.tool_use_id, 0) + 1

    def due(self) -> list[KnownPayload]:
        """The inputs from outside that are due now."""
        payloads: list[KnownPayload] = []
        for cue in self.recording.inputs[self.inputs_sent :]:
            if cue.stops or not self.replay_progress.has_reached(cue.due):
                break
            payloads.append(self._for_this_run(cue.payload))  # pyright: ignore[reportArgumentType] (never Unknown)
        return payloads

    def late(self) -> list[events.ContextAdded]:
        """The context that hooks added before the current position, so that it is not added
        again."""
        contexts: list[events.ContextAdded] = []
        for added in self.recording.hook_context[self.added :]:
            is_ahead = not self.replay_progress.has_reached(added.due) or (
                self.replay_progress == added.due and self._is_still_to_come(added)
            )
            if is_ahead:
                break
            contexts.append(added.payload)
        return contexts

    def _is_still_to_come(self, context: HookContext) -> bool:
        if context.event == "UserPromptSubmit":
            return context.messages > self.prompts
        return context.event == "PostCompact"

    def context(self, hook_event: HookEvent) -> tuple[str, ...]:
        """The context that hooks added for this event."""
        texts: list[str] = []
        for added in self.recording.hook_context[self.added :]:
            if (added.due, added.event) != (self.replay_progress, hook_event.event):
                break
            texts.append(added.payload.text)
        return tuple(texts)

    def prompt(self, hook_event: HookEvent) -> HookResult:
        """The verdict of hooks on the next user message."""
        messages, withheld = self.recording.messages, self.recording.withheld
        event_id = messages[self.prompts] if self.prompts < len(messages) else None
        self.prompts += 1
        return HookResult(
            context=self.context(hook_event),
            blocked=event_id in withheld,
            reason=None if event_id is None else withheld.get(event_id),
            stop=HOOK_STOPPED if self.end_reason() == HOOK_STOPPED else None,
        )

    def end_reason(self) -> str | None:
        """Why the recorded run ended here, if it did."""
        return next((why for due, why in self.recording.ends if due == self.replay_progress), None)

    def shot(self) -> ModelCall | None:
        shots = self.recording.model_calls
        return shots[self.begun - 1] if 0 < self.begun <= len(shots) else None

    def matching_call(self, name: str, tool_input: Mapping[str, object]) -> RecordedCall | None:
        """The first running call that was recorded with this input."""
        calls = (self.recorded(call_id) for call_id in self.open)
        return next((call for call in calls if call and call.is_like(name, tool_input)), None)

    def recorded(self, call_id: str | None) -> RecordedCall | None:
        index = self.calls.get(call_id or "")
        calls = self.recording.calls
        return calls[index] if index is not None and index < len(calls) else None

    def cost(self, _model: str, _usage: events.Usage) -> Decimal:
        shot = self.shot()
        end = None if shot is None else shot.end
        return Decimal(0 if end is None or end.cost_usd is None else end.cost_usd)

    def compare(self, _recorded: str, request: Request) -> str | None:
        shot = self.shot()
        if shot is None:
            return "the recording does not have this call"
        if canonical_request(shot.request) == canonical_request(request):
            return None
        lines = unified_diff(
            request_lines(shot.request), request_lines(request), "recorded", "now", lineterm="", n=1
        )
        diff = [line if len(line) <= 200 else f"{line[:199]}…" for line in lines]
        what = "the model request has changed"
        self.divergence = Divergence(
            call=self.begun, what=what, diff=tuple(diff[:_DIFF_LINES]) or ("only ids differ",)
        )
        return what

    def _for_this_run(self, payload: object) -> object:
        """Replace a recorded call id with the id of this run's call."""
        match payload:
            case (
                events.UserToolConfirmation(tool_use_id=call_id)
                | events.UserToolResult(tool_use_id=call_id)
            ):
                return msgspec.structs.replace(payload, tool_use_id=self._current_id(call_id))
            case events.UserCustomToolResult(custom_tool_use_id=call_id):
                return msgspec.structs.replace(
                    payload, custom_tool_use_id=self._current_id(call_id)
                )
            case _:
                return payload

    def _current_id(self, recorded_id: str) -> str:
        number = self.recording.call_number(recorded_id)
        return next((id_ for id_, index in self.calls.items() if index == number), recorded_id)
