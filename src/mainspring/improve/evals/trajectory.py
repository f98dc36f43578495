"""The trajectory of a trial, folded from its log: calls and their results, messages, cost. It does
not rely on the agent's own statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import Usage
from mainspring.harness.permissions.bash.command_analysis import analyze_command
from mainspring.harness.permissions.tool_names import (
    INTERNAL_TOOLS,
    NEEDS_A_PERSON,
    NETWORK_TOOLS,
    READ_ANYTHING,
    READ_TOOLS,
    SHELL_TOOLS,
    canonical_name,
)
from mainspring.harness.state.open_call import CallResult, OpenCall, call_id_of, proposed_call
from mainspring.harness.state.thread_tree import SpendAccount, add_usage

_WITHOUT_EFFECT = READ_TOOLS | INTERNAL_TOOLS | NEEDS_A_PERSON | NETWORK_TOOLS | READ_ANYTHING


@dataclass(slots=True)
class TrajectoryCall:
    call: OpenCall
    was_asked: bool = False
    """Whether a gate asked a person for approval."""
    was_approved: bool = False
    """Whether a person approved it before it started."""
    was_denied: bool = False
    result: str = ""
    is_read_only: bool = False
    """Whether it is a service of the case without effects."""

    @property
    def name(self) -> str:
        return canonical_name(self.call.name)

    @property
    def has_run(self) -> bool:
        return self.call.started is not None

    @property
    def ending(self) -> str:
        if self.was_denied:
            return "denied"
        return (self.call.failure or "ran") if self.has_run else "not run"

    @property
    def has_effect(self) -> bool:
        """Whether it ran and may have had an effect; commands count unless they are known to be
        read-only."""
        if not self.has_run or self.is_read_only or self.name in _WITHOUT_EFFECT:
            return False
        if self.name in SHELL_TOOLS:
            return not analyze_command(str(self.call.input.get("command", ""))).read_only
        return True


@dataclass(slots=True)
class TrajectoryLog:
    """The trajectory of a session, for graders."""

    read_only_services: frozenset[str] = frozenset()
    calls: list[TrajectoryCall] = field(default_factory=list[TrajectoryCall])
    skills: list[str] = field(default_factory=list[str])
    hosts: list[events.NetworkRequested] = field(default_factory=list[events.NetworkRequested])
    answers: list[str] = field(default_factory=list[str])
    """The final answer of each run."""
    reason: str | None = None
    """Why the last run ended."""
    detail: str | None = None
    turns: int = 0
    """The number of answered requests of the conversation, without those that a crash
    interrupted."""
    _places: dict[str, int] = field(default_factory=dict[str, int])
    cut_off: int = 0
    """Model requests that died with their process. What they cost is not known, so it is not
    counted."""
    cost_usd: Decimal = Decimal(0)
    usage: Usage = field(default_factory=Usage)
    _account: SpendAccount = field(default_factory=SpendAccount)
    _main: str = ""
    _texts: list[str] = field(default_factory=list[str])
    _messages: list[str] = field(default_factory=list[str])

    @property
    def answer(self) -> str:
        return self.answers[-1] if self.answers else "\n\n".join(self._texts)

    @property
    def transcript(self) -> str:
        """All messages of the agent to the user."""
        return "\n\n".join(self._messages)

    @property
    def lines(self) -> list[str]:
        """Calls with their results, then the answers, in readable lines."""
        calls = [
            f"{item.name} {dict(item.call.input)}\n  -> {item.ending}: {item.result}".rstrip()
            for item in self.calls
        ]
        return [line for text in (*calls, *self.answers) for line in text.splitlines()]

    @property
    def running_seconds(self) -> float:
        """The duration of its finished runs."""
        return self._account.spending.seconds_before

    @property
    def failed_calls(self) -> int:
        return sum(item.call.failure is not None for item in self.calls)

    def apply(self, event: Event) -> None:
        self._account.apply(event)
        self._main = self._main or event.thread_id
        payload = event.payload
        if (proposed := proposed_call(event)) is not None:
            self._places[event.id] = len(self.calls)
            is_read_only = proposed.name in self.read_only_services
            self.calls.append(TrajectoryCall(proposed, is_read_only=is_read_only))
            if event.thread_id == self._main:
                self._texts.clear()
            return
        if (call_id := call_id_of(payload)) is not None and call_id in self._places:
            self._apply_to_call(self.calls[self._places[call_id]], event)
        else:
            self._apply_to_session(event)

    def _apply_to_session(self, event: Event) -> None:
        match payload := event.payload:
            case events.AgentMessage(content=content) if event.thread_id == self._main:
                self._texts.append(plain_text(content))
                self._messages.append(plain_text(content))
            case events.StatusIdle() if event.thread_id == self._main:
                self.reason, self.detail = payload.reason, payload.detail
                self.answers.append("\n\n".join(self._texts))
                self._texts.clear()
            case events.ModelRequestEnded():
                self._apply_request(payload)
            case events.SkillUsed(name=name):
                self.skills.append(name)
            case events.NetworkRequested():
                self.hosts.append(payload)
            case _:
                pass

    def _apply_request(self, ended: events.ModelRequestEnded) -> None:
        if ended.stop_reason == "abandoned":  # it counts as if it had cost its whole reservation
            self.cut_off += 1
            return
        self.turns += not ended.is_error and ended.purpose is None
        self.cost_usd += Decimal(ended.cost_usd or 0)
        self.usage = add_usage(self.usage, ended.model_usage)

    def _apply_to_call(self, item: TrajectoryCall, event: Event) -> None:
        payload = event.payload
        item.call = item.call.after(event)
        match payload:
            case events.ToolCallAuthorized(decision=decision):
                item.was_asked = item.was_asked or decision == "ask"
                item.was_denied = decision == "deny"
            case events.UserToolConfirmation(result=result):
                item.was_denied = result == "deny"
                item.was_approved = result == "allow" and not item.has_run
            case _ if isinstance(payload, CallResult):
                item.result = plain_text(payload.content)
                item.was_denied = item.was_denied or item.call.failure == "denied"
            case _:
                pass


def read_trajectory(
    log: Iterable[Event], read_only_services: frozenset[str] = frozenset()
) -> TrajectoryLog:
    trajectory = TrajectoryLog(read_only_services)
    for event in log:
        trajectory.apply(event)
    return trajectory
