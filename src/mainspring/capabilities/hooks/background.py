"""Hooks that nobody waits for: what they have said is kept until it can be told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
from anyio.abc import TaskGroup

from mainspring.capabilities.hooks.config import CommandHook
from mainspring.capabilities.hooks.handlers import HandlerCall, HandlerResult
from mainspring.capabilities.hooks.verdict import HookFailure
from mainspring.core.errors import MainspringError
from mainspring.core.hook import HookEventName, HookResult

Wake: TypeAlias = Callable[[str], Awaitable[None]]
"""Gives the session words to go on with, also if it is idle."""

MAX_AT_ONCE = 16
_TAKES_CONTEXT = frozenset[HookEventName](
    (
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "PostToolBatch",
    )
)


@dataclass(slots=True)
class BackgroundHooks:
    wake: Wake | None = None
    _running: int = 0
    _context: list[str] = field(default_factory=list[str])
    _told: list[HookResult] = field(default_factory=list[HookResult])

    def start(
        self,
        group: TaskGroup | None,
        handler_call: HandlerCall,
        handler: CommandHook,
        *,
        seconds: float,
    ) -> None:
        """Start one and come back at once. It cannot block, so neither can its failure."""
        if group is None:
            self._fail(handler_call, handler, "runs in the background, but the runner is not open")
            return
        if self._running >= MAX_AT_ONCE:
            self._fail(handler_call, handler, f"was not started: {MAX_AT_ONCE} are running already")
            return
        self._running += 1

        async def run() -> None:
            try:
                answered = await handler_call.run(handler, seconds=seconds)
                await self._keep(answered, rewakes=handler.async_rewake)
            finally:
                self._running -= 1

        group.start_soon(run)

    def take(self, event: HookEventName) -> list[HookResult]:
        """What has been said since last asked. Words for the model wait for an event at which
        the model is told something."""
        told, self._told = self._told, []
        if event in _TAKES_CONTEXT and self._context:
            told.append(HookResult(context=tuple(self._context)))
            self._context = []
        return told

    def _fail(self, handler_call: HandlerCall, handler: CommandHook, why: str) -> None:
        failed = HandlerResult(
            label=handler.label,
            hook_event=handler_call.hook_event,
            handler_reply=HookFailure(why),
            milliseconds=0,
        )
        self._told.append(
            HookResult(messages=(f"hook {handler.label} {why}",), hook_runs=(failed.fact(),))
        )

    async def _keep(self, handler_result: HandlerResult, *, rewakes: bool) -> None:
        messages: tuple[str, ...] = ()
        match handler_result.handler_reply:
            case HookFailure(reason=reason):
                messages = (f"hook {handler_result.label} {reason}",)
            case HookResult(context=context, messages=messages, blocked=blocked, reason=reason):
                self._context.extend(context)
                unheard = tuple(
                    f"hook {handler_result.label}: {e}"
                    for e in handler_result.handler_reply.ignored
                )
                messages = (*messages, *unheard)
                if blocked and rewakes and reason:
                    await self._tell_model(reason)
        fact = handler_result.fact()
        if fact.outcome == "blocked":
            fact = msgspec.structs.replace(fact, outcome="ok")  # too late for that
        self._told.append(HookResult(messages=messages, hook_runs=(fact,)))

    async def _tell_model(self, words: str) -> None:
        try:
            if self.wake is not None:
                await self.wake(words)
                return
        except MainspringError:
            pass  # the session cannot be woken: it reads them when it goes on
        self._context.append(words)
