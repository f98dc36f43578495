"""Test doubles that replay a recorded session: the model, the tools, the authorizer and the
thread context.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import get_args

import anyio
import msgspec

from mainspring.capabilities.providers.scripted import ReplayModel
from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.errors import ProviderFailed, ProviderFailure
from mainspring.core.hook import HookEvent, HookResult
from mainspring.core.model import Delta, Reply, Request, ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.authorizer import Decision
from mainspring.harness.budget import budget_status
from mainspring.harness.context.status_block import GOAL_LABEL
from mainspring.harness.limits import Limits
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Continue, Ended
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.tool_pipeline import denial_text
from mainspring.runtime.replay.recorded_call import RecordedCall, key_of
from mainspring.runtime.replay.recording import LIMIT_REASONS, Recording, side_reply
from mainspring.runtime.replay.replay_cursor import HOOK_STOPPED, RecordedCrash, ReplayCursor

NOT_RECORDED = "This call was not recorded, and tools are not run in a replay."
_NO_CAP = 10**9  # more than any recording has
_FAILURES: tuple[str, ...] = get_args(ProviderFailure)


def recorded_result_tools(recording: Recording, specs: Iterable[ToolSpec]) -> list[Tool]:
    """Tools that return the results of recorded calls, in any order and any number of times."""
    return [_recorded_result_tool(recording, spec) for spec in specs]


def _recorded_result_tool(recording: Recording, spec: ToolSpec) -> Tool:
    results = {call.key: call for call in reversed(recording.calls)}

    async def run(call: Call) -> ToolResult:
        recorded = results.get(key_of(spec.name, call.input))
        return _tool_result(recorded) or ToolResult.text(NOT_RECORDED, ok=False)

    return Tool(spec=spec, run=run, traits=lambda _: Traits(max_chars=_NO_CAP))


class RecordedModel:
    """Replays replies, failures, interruptions and crashes."""

    def __init__(self, replay_cursor: ReplayCursor) -> None:
        recording = replay_cursor.recording
        self.replay_cursor = replay_cursor
        self.replay = ReplayModel(
            [
                (str(shot.number), recording.reply(shot))
                for shot in recording.model_calls[replay_cursor.begun :]
            ],
            compare=replay_cursor.compare,
        )
        self._answered = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if self.replay_cursor.is_beside:
            yield await self._side(request)
            return
        number = self.replay_cursor.begun
        if number == self._answered and self.replay.diverged is None:
            raise self._failure()  # retried without streaming: the call failed for good
        self._answered = number
        reply: Reply | None = None
        async with aclosing(self.replay.stream(request)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield item
        if reply is not None and self.replay.diverged is None:
            for switch in self.replay_cursor.recording.switches.get(number, ()):
                yield switch
            await self._end()
        if reply is not None:
            yield reply

    async def _side(self, request: Request) -> Reply:
        sides = self.replay_cursor.recording.sides
        if self.replay_cursor.sides > len(sides):
            raise ProviderFailed("replay", "exhausted", "this side call was not recorded")
        side = sides[self.replay_cursor.sides - 1]
        if side.end is None:
            raise RecordedCrash
        await self._end_as(side.end)
        return side_reply(side, request.model)

    async def _end(self) -> None:
        shot = self.replay_cursor.shot()
        end = None if shot is None else shot.end
        if end is None or end.stop_reason == "abandoned":
            raise RecordedCrash
        await self._end_as(end)

    async def _end_as(self, end: events.ModelRequestEnded) -> None:
        if end.stop_reason == "interrupted":
            await self.replay_cursor.interrupt()
            await anyio.sleep_forever()
        if end.is_error and end.stop_reason in _FAILURES:
            raise self._failure(end)

    def _failure(self, end: events.ModelRequestEnded | None = None) -> ProviderFailed:
        shot = self.replay_cursor.shot()
        end = end or (None if shot is None else shot.end)
        kind = end.stop_reason if end is not None else None
        message = self.replay_cursor.recording.errors.get(
            self.replay_cursor.begun, "replay: as recorded"
        )
        provider, _, problem = message.partition(": ")
        failure: ProviderFailure = next(
            (name for name in get_args(ProviderFailure) if name == kind), "exhausted"
        )
        return ProviderFailed(provider, failure, problem or message)


class RecordedAuthorizer:
    def __init__(self, replay_cursor: ReplayCursor) -> None:
        self._replay_cursor = replay_cursor

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        recorded = self._replay_cursor.recorded(call.id)
        if recorded is not None and recorded.decision is not None:
            return recorded.decision
        return Decision(decision="allow", gate="default")

    def still_forbidden(self, call: Call, traits: Traits) -> Decision | None:
        recorded = self._replay_cursor.recorded(call.id)
        if recorded is None or self._replay_cursor.answers.get(call.id, 0) <= recorded.voids:
            return None
        return recorded.forbidden

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        match hook_event.event:
            case "UserPromptSubmit":
                return self._replay_cursor.prompt(hook_event)
            case "PermissionDenied":
                return HookResult(context=self._text_after_denial(hook_event))
            case _:
                return HookResult(context=self._replay_cursor.context(hook_event))

    def _text_after_denial(self, hook_event: HookEvent) -> tuple[str, ...]:
        """The text that the model read in addition to the denial."""
        recorded = self._replay_cursor.recorded(hook_event.tool_use_id)
        if recorded is None or recorded.content is None:
            return ()
        first = denial_text(str(hook_event.fields["reason"]))
        added_text = plain_text(recorded.content).removeprefix(first).removeprefix("\n")
        return (added_text,) if added_text else ()

    async def after_round(self, thread: Thread) -> Ended | None:
        if self._replay_cursor.end_reason() != HOOK_STOPPED:
            return None
        is_about_words = any(
            isinstance(item, events.UserMessage) for item in self._replay_cursor.due()
        )
        return None if is_about_words else Ended(HOOK_STOPPED)

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        script = self._replay_cursor
        for due, feedback in script.recording.feedback:
            if due == script.replay_progress:
                return Continue(feedback.reason, feedback.detail)  # pyright: ignore[reportArgumentType] (one of FEEDBACK)
        if script.end_reason() == "stop_hook_prevented":
            return Ended("stop_hook_prevented")
        return None

    async def before_compact(self, thread: Thread) -> None:
        return None


class RecordedThreadContext(ThreadContext):
    """Delivers messages from outside at the same points as in the recording."""

    replay_cursor: ReplayCursor

    def __post_init__(self) -> None:
        super().__post_init__()
        self._own_tiers = self.tiers

    async def receive_inbox(self, *, if_changed: bool = False) -> list[Event]:
        events_ = await super().receive_inbox(if_changed=if_changed)
        self.note(*self.replay_cursor.late())
        while due := self.replay_cursor.due():
            events_ += self.note(*due)
        self.tiers = self._own_tiers
        if self.replay_cursor.end_reason() in LIMIT_REASONS:
            self.tiers = [replace(tier, limits=Limits(max_turns=0)) for tier in self._own_tiers]
        return events_

    def status(self) -> str | None:
        """The recorded status; the current agent may have other limits."""
        statuses = self.replay_cursor.recording.statuses
        if self.replay_cursor.repeats_budget:
            return statuses.get(self.replay_cursor.begun)
        if any(text.startswith(GOAL_LABEL) for text in statuses.values()):
            return super().status()
        budget = budget_status(self.tiers)  # a recording from before requests ended with the goal
        return None if budget == self.thread.status else budget

    def select_model(self) -> None:
        """The recording decides what skills requested; the current agent has its own model."""
        shots = self.replay_cursor.recording.model_calls
        if not self.replay_cursor.repeats_budget or self.replay_cursor.begun >= len(shots):
            return
        request = shots[self.replay_cursor.begun].request
        self.prompt_prefix = msgspec.structs.replace(
            self.prompt_prefix, model=request.model, effort=request.effort
        )

    def _apply(self, events: Iterable[Event]) -> None:
        batch = list(events)
        super()._apply(batch)
        for event in batch:
            self.replay_cursor.observe(event)


def recorded_tools(replay_cursor: ReplayCursor, specs: Iterable[ToolSpec]) -> list[Tool]:
    """Each call gets the result of the recorded call in its place, or else of an equal call.

    Calls of unknown tools are answered as they were in the recording, too."""
    tools: dict[str, Tool] = {}
    tool_specs = [
        ToolSpec(name=call.name, description="", input_schema={})
        for call in _agent_calls(replay_cursor)
    ]
    for spec in (*tool_specs, *specs):
        does = _RecordedTool(replay_cursor, spec.name)
        tools[spec.name] = Tool(
            spec=spec,
            run=does.run,
            traits=does.traits,
            probe=does.probe,
            invalid=does.invalid,
            preview=does.preview,
        )
    return [*tools.values()]


def _agent_calls(replay_cursor: ReplayCursor) -> Iterable[RecordedCall]:
    return (call for call in replay_cursor.recording.calls if not call.is_custom)


class _RecordedTool:
    """Repeats what the tool did in the recording, and does nothing else."""

    def __init__(self, replay_cursor: ReplayCursor, name: str) -> None:
        self._replay_cursor = replay_cursor
        self._name = name
        recorded_calls = [call for call in replay_cursor.recording.calls if call.name == name]
        self._by_input = {call.key: call for call in reversed(recorded_calls)}

    async def run(self, call: Call) -> ToolResult:
        script, recorded = self._replay_cursor, self._replay_cursor.recorded(call.id)
        if recorded is None or not recorded.is_like(self._name, call.input):
            alike = self._by_input.get(key_of(self._name, call.input))
            return _tool_result(alike) or ToolResult.text(NOT_RECORDED, ok=False)
        attempt = script.attempts.get(call.id, 1)
        fate = (
            recorded.call_endings[attempt - 1]
            if attempt <= len(recorded.call_endings)
            else "settled"
        )
        if fate == "interrupted":
            await script.interrupt()
            await anyio.sleep_forever()
        outcome = _tool_result(recorded)
        if fate == "crashed" or outcome is None:
            raise RecordedCrash
        return outcome

    async def probe(self, call: Call) -> ToolResult | None:
        recorded = self._replay_cursor.recorded(call.id)
        attempts = self._replay_cursor.attempts.get(call.id, 0)
        is_repeated = recorded is not None and attempts < len(recorded.call_endings)
        return None if is_repeated else _tool_result(recorded)

    async def preview(self, call: Call) -> str | None:
        """Returns a different preview where an answer came too late in the recording, so that it is
        too late again."""
        recorded = self._replay_cursor.recorded(call.id)
        if recorded is None or not recorded.voids:
            return None
        return f"{min(self._replay_cursor.answers.get(call.id, 0), recorded.voids)}"

    def traits(self, given: Mapping[str, object]) -> Traits:
        recorded = self._replay_cursor.matching_call(self._name, given)
        policy = recorded.policy if recorded is not None else None
        return Traits(
            # the recording says whether a redacted input was refused; nothing is written here
            read_only=recorded is not None and not recorded.is_refused,
            concurrent=recorded is not None and recorded.is_parallel,
            in_doubt=policy or "report",
            max_chars=_NO_CAP,
        )

    def invalid(self, given: Mapping[str, object]) -> str | None:
        recorded = self._replay_cursor.matching_call(self._name, given)
        if recorded is None or not recorded.is_refused or recorded.content is None:
            return None
        return plain_text(recorded.content)


def _tool_result(recorded: RecordedCall | None) -> ToolResult | None:
    if recorded is None or recorded.content is None:
        return None
    return ToolResult(recorded.content, not recorded.is_error, facts=recorded.facts)
