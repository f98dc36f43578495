"""Those who play a recorded session again: the model, the tools, the gates, and the desk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import unified_diff
from typing import get_args

import anyio
import msgspec

from mainspring.capabilities.providers.replay import Replay
from mainspring.core import events, facts
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event, KnownPayload
from mainspring.core.errors import ProviderFailed, ProviderFailure
from mainspring.core.hook import NOTHING_SAID, Occasion, Ruling
from mainspring.core.model import Delta, Reply, Request, ToolSpec
from mainspring.core.tool import Call, Outcome, Tool, Traits
from mainspring.harness.context.anatomy import request_lines
from mainspring.harness.context.xray import Shot, canonical
from mainspring.harness.desk import Desk
from mainspring.harness.gates import Decision
from mainspring.harness.limits import Limits
from mainspring.harness.reasons import Continue, Ended
from mainspring.harness.thread import Thread
from mainspring.testing.recording import (
    CLIENT,
    LIMITS,
    PROPOSED,
    Progress,
    RecordedCall,
    Recording,
    advanced,
    side_reply,
)

NOT_RECORDED = "This call was not recorded, and tools are not run in a replay."
_DIFF_LINES = 16
_NO_CAP = 10**9
_FAILURES: tuple[str, ...] = get_args(ProviderFailure)
_ENCODER = msgspec.json.Encoder(order="deterministic")


class Crashed(Exception):
    """Here the recorded process died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where a run left the recording, and how."""

    call: int
    """Of the model, counted from 1."""
    what: str
    diff: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"call {self.call}: {self.what}", *self.diff])


@dataclass(slots=True, kw_only=True)
class Script:
    """The recording, and where in it the run is. Everything is counted from the run's own log."""

    recording: Recording
    interrupt: Callable[[], Awaitable[object]]
    """Sends an interrupt to the session that is played."""
    tells_status: bool
    """The recorded words on the budget are given again; else the limits are the agent's own."""
    progress: Progress = field(default_factory=Progress)
    begun: int = 0
    sides: int = 0
    cued: int = 0
    is_beside: bool = False
    """The call of the model under way is none of the conversation."""
    calls: dict[str, int] = field(default_factory=dict[str, int])
    """Ids of this run's calls, and which recorded one each is."""
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    divergence: Divergence | None = None

    def restart(self, log: Iterable[Event]) -> None:
        """As if all that happened so far were in this log only."""
        self.progress, self.begun, self.sides, self.cued = Progress(), 0, 0, 0
        self.calls, self.attempts = {}, {}
        for event in log:
            self.see(event)

    def see(self, event: Event) -> None:
        payload = event.payload
        self.progress = advanced(self.progress, payload)
        if isinstance(payload, PROPOSED):
            self.calls[event.id] = len(self.calls)
        elif isinstance(payload, CLIENT) or (
            self.tells_status and isinstance(payload, facts.ContextStatus)
        ):
            self.cued += 1
        elif isinstance(payload, facts.ToolCallStarted):
            self.attempts[payload.tool_use_id] = self.attempts.get(payload.tool_use_id, 0) + 1
        elif isinstance(payload, events.ModelRequestStarted):
            self.begun += payload.purpose is None
            self.is_beside = payload.purpose is not None
            self.sides += self.is_beside

    def due(self) -> list[KnownPayload]:
        """What comes from outside now."""
        cues = [
            cue
            for cue in self.recording.cues
            if self.tells_status or not isinstance(cue.payload, facts.ContextStatus)
        ]
        found: list[KnownPayload] = []
        for cue in cues[self.cued :]:
            if cue.stops or not self.progress.has_reached(cue.due):
                break
            found.append(self._renamed(cue.payload))  # pyright: ignore[reportArgumentType] (never Unknown)
        return found

    def end_reason(self) -> str | None:
        """Why the recorded run ended here, if it did."""
        return next((why for due, why in self.recording.ends if due == self.progress), None)

    def shot(self) -> Shot | None:
        shots = self.recording.shots
        return shots[self.begun - 1] if 0 < self.begun <= len(shots) else None

    def call(self, call: Call) -> RecordedCall | None:
        at = self.calls.get(call.id)
        calls = self.recording.calls
        return calls[at] if at is not None and at < len(calls) else None

    def cost(self, _model: str, _usage: events.Usage) -> Decimal:
        shot = self.shot()
        end = None if shot is None else shot.end
        return Decimal(0 if end is None or end.cost_usd is None else end.cost_usd)

    def compare(self, _recorded: str, request: Request) -> str | None:
        shot = self.shot()
        if shot is None:
            return "the recording has no such call"
        if canonical(shot.request) == canonical(request):
            return None
        lines = unified_diff(
            request_lines(shot.request), request_lines(request), "recorded", "now", lineterm="", n=1
        )
        diff = [line if len(line) <= 200 else f"{line[:199]}…" for line in lines]
        what = "what the model is given has changed"
        self.divergence = Divergence(
            call=self.begun, what=what, diff=tuple(diff[:_DIFF_LINES]) or ("only ids differ",)
        )
        return what

    def _renamed(self, payload: object) -> object:
        """Answers to calls are given to this run's calls."""
        match payload:
            case (
                events.UserToolConfirmation(tool_use_id=call_id)
                | events.UserToolResult(tool_use_id=call_id)
            ):
                return msgspec.structs.replace(payload, tool_use_id=self._live(call_id))
            case events.UserCustomToolResult(custom_tool_use_id=call_id):
                return msgspec.structs.replace(payload, custom_tool_use_id=self._live(call_id))
            case _:
                return payload

    def _live(self, recorded_id: str) -> str:
        at = self.recording.named(recorded_id)
        return next((live for live, index in self.calls.items() if index == at), recorded_id)


def known_results(recording: Recording, specs: Iterable[ToolSpec]) -> list[Tool]:
    """Tools that know the results of recorded calls, whenever and however often they are asked."""
    return [_known(recording, spec) for spec in specs]


def _known(recording: Recording, spec: ToolSpec) -> Tool:
    known = {call.key: call for call in reversed(recording.calls)}

    async def run(call: Call) -> Outcome:
        found = known.get((spec.name, _ENCODER.encode(call.input)))
        return _outcome(found) or Outcome.text(NOT_RECORDED, ok=False)

    return Tool(spec=spec, run=run, traits=lambda _: Traits(max_chars=_NO_CAP))


class RecordedModel:
    """Replays replies, failures, interruptions and crashes."""

    def __init__(self, script: Script) -> None:
        recording = script.recording
        self.script = script
        self.replay = Replay(
            [(str(shot.number), recording.reply(shot)) for shot in recording.shots[script.begun :]],
            compare=script.compare,
        )
        self._answered = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if self.script.is_beside:
            yield await self._side(request)
            return
        number = self.script.begun
        if number == self._answered and self.replay.diverged is None:
            raise self._failure()  # asked again without streaming: it failed for good
        self._answered = number
        reply: Reply | None = None
        async with aclosing(self.replay.stream(request)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield item
        if reply is not None and self.replay.diverged is None:
            for switch in self.script.recording.switches.get(number, ()):
                yield switch
            await self._end()
        if reply is not None:
            yield reply

    async def _side(self, request: Request) -> Reply:
        sides = self.script.recording.sides
        if self.script.sides > len(sides):
            raise ProviderFailed("replay", "exhausted", "this side call was not recorded")
        side = sides[self.script.sides - 1]
        if side.end is None:
            raise Crashed
        await self._end_as(side.end)
        return side_reply(side, request.model)

    async def _end(self) -> None:
        shot = self.script.shot()
        end = None if shot is None else shot.end
        if end is None or end.stop_reason == "abandoned":
            raise Crashed
        await self._end_as(end)

    async def _end_as(self, end: events.ModelRequestEnded) -> None:
        if end.stop_reason == "interrupted":
            await self.script.interrupt()
            await anyio.sleep_forever()
        if end.is_error and end.stop_reason in _FAILURES:
            raise self._failure(end)

    def _failure(self, end: events.ModelRequestEnded | None = None) -> ProviderFailed:
        shot = self.script.shot()
        end = end or (None if shot is None else shot.end)
        kind = end.stop_reason if end is not None else None
        message = self.script.recording.errors.get(self.script.begun, "replay: as recorded")
        provider, _, what = message.partition(": ")
        known: ProviderFailure = next(
            (name for name in get_args(ProviderFailure) if name == kind), "exhausted"
        )
        return ProviderFailed(provider, known, what or message)


class RecordedGates:
    def __init__(self, script: Script) -> None:
        self._script = script

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        recorded = self._script.call(call)
        if recorded is not None and recorded.decision is not None:
            return recorded.decision
        return Decision(decision="allow", gate="default")

    async def tell(self, thread: Thread, occasion: Occasion) -> Ruling:
        return NOTHING_SAID

    async def after_round(self, thread: Thread) -> Ended | None:
        return Ended("hook_stopped") if self._script.end_reason() == "hook_stopped" else None

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        script = self._script
        for due, feedback in script.recording.feedback:
            if due == script.progress:
                return Continue(feedback.reason, feedback.detail)  # pyright: ignore[reportArgumentType] (one of FEEDBACK)
        if script.end_reason() == "stop_hook_prevented":
            return Ended("stop_hook_prevented")
        return None

    async def before_compact(self, thread: Thread) -> None:
        return None


class RecordedDesk(Desk):
    """Hears what was said from outside exactly when it was heard in the recording."""

    script: Script
    own_limits: Limits

    async def listen(self) -> list[Event]:
        heard = await super().listen()
        while due := self.script.due():
            heard += self.note(*due)
        is_limit = self.script.end_reason() in LIMITS
        self.limits = Limits(max_turns=0) if is_limit else self.own_limits
        return heard

    def _apply(self, events: Iterable[Event]) -> None:
        told = list(events)
        super()._apply(told)
        for event in told:
            self.script.see(event)


def recorded_tools(script: Script, specs: Iterable[ToolSpec]) -> Mapping[str, Tool]:
    """Each call has the fate of the recorded one in its place; any other, of one like it."""
    tools: dict[str, Tool] = {}
    for spec in specs:
        does = _RecordedTool(script, spec.name)
        tools[spec.name] = Tool(
            spec=spec, run=does.run, traits=does.traits, probe=does.probe, invalid=does.invalid
        )
    return tools


class _RecordedTool:
    """What it did then, it does again; what it was not asked then, it does not do."""

    def __init__(self, script: Script, name: str) -> None:
        self._script = script
        self._name = name
        known = [call for call in script.recording.calls if call.name == name]
        self._by_input = {call.key: call for call in reversed(known)}

    async def run(self, call: Call) -> Outcome:
        script, recorded = self._script, self._script.call(call)
        if recorded is None or recorded.key != (self._name, _ENCODER.encode(call.input)):
            alike = self._alike(call.input)
            return _outcome(alike) or Outcome.text(NOT_RECORDED, ok=False)
        attempt = script.attempts.get(call.id, 1)
        fate = recorded.fates[attempt - 1] if attempt <= len(recorded.fates) else "settled"
        if fate == "interrupted":
            await script.interrupt()
            await anyio.sleep_forever()
        outcome = _outcome(recorded)
        if fate == "crashed" or outcome is None:
            raise Crashed
        return outcome

    async def probe(self, call: Call) -> Outcome | None:
        recorded = self._script.call(call)
        attempts = self._script.attempts.get(call.id, 0)
        is_repeated = recorded is not None and attempts < len(recorded.fates)
        return None if is_repeated else _outcome(recorded)

    def traits(self, given: Mapping[str, object]) -> Traits:
        recorded = self._alike(given)
        policy = recorded.policy if recorded is not None else None
        return Traits(
            concurrent=recorded is not None and recorded.is_parallel,
            in_doubt=policy or "report",
            max_chars=_NO_CAP,
        )

    def invalid(self, given: Mapping[str, object]) -> str | None:
        recorded = self._alike(given)
        if recorded is None or not recorded.is_refused or recorded.content is None:
            return None
        return plain_text(recorded.content)

    def _alike(self, given: Mapping[str, object]) -> RecordedCall | None:
        return self._by_input.get((self._name, _ENCODER.encode(given)))


def _outcome(recorded: RecordedCall | None) -> Outcome | None:
    if recorded is None or recorded.content is None:
        return None
    return Outcome(recorded.content, not recorded.is_error)
