"""Hooks and guardrails that are Python functions. `agent_authorizer.py` runs them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, TypeAlias, TypeVar, cast, overload

import anyio
from anyio import to_thread

from mainspring.core.events import HookRan
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookEventName, HookResult
from mainspring.core.tool import Call

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]
HookFunction: TypeAlias = Callable[[HookEvent], MaybeAwaitable[HookResult | None]]
TextGuardrail: TypeAlias = Callable[[str], MaybeAwaitable[str | None]]
"""Takes a text; returns the reason to block it, or `None`."""
CallGuardrail: TypeAlias = Callable[[Call], MaybeAwaitable[str | None]]
"""Takes a tool call; returns the reason to block it, or `None`."""

GATES: frozenset[HookEventName] = frozenset(
    ("UserPromptSubmit", "PreToolUse", "PermissionRequest", "Stop", "SubagentStop", "PreCompact")
)
"""Events at which a hook that fails or times out counts as a refusal."""
_STRICTEST_FIRST = ("deny", "defer", "ask", "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionHook:
    """A hook that is a function of this program."""

    event: HookEventName
    name: str
    run: Callable[[HookEvent, Call | None], Awaitable[HookResult | None]]
    matcher: str = ""
    """Names or patterns that the event's subject must match, separated by `|`; empty: all."""
    is_guardrail: bool = False
    seconds: float = 60

    def matches(self, hook_event: HookEvent) -> bool:
        if hook_event.event != self.event:
            return False
        patterns = [item.strip() for item in self.matcher.split("|")]
        return self.matcher in ("", "*") or any(
            fnmatchcase(hook_event.subject, pattern) for pattern in patterns
        )


def hook(
    event: HookEventName, matcher: str = "", *, seconds: float = 60
) -> Callable[[HookFunction], FunctionHook]:
    """Make a hook of a function: `@hook("PreToolUse", "send_*")`.

    It receives the event and returns a `HookResult`, or nothing if it has no opinion. At a gate,
    a function that raises or takes longer than `seconds` denies.
    """

    def define(function: HookFunction) -> FunctionHook:
        async def run(hook_event: HookEvent, _call: Call | None) -> HookResult | None:
            return await call_function(function, hook_event)

        return FunctionHook(
            event=event, name=name_of(function), run=run, matcher=matcher, seconds=seconds
        )

    return define


@overload
def guardrail(
    kind: Literal["input", "output"],
) -> Callable[[TextGuardrail], FunctionHook]: ...
@overload
def guardrail(
    kind: Literal["tool"], tool: str = "*"
) -> Callable[[CallGuardrail], FunctionHook]: ...
def guardrail(
    kind: Literal["input", "output", "tool"], tool: str = "*"
) -> Callable[[TextGuardrail], FunctionHook] | Callable[[CallGuardrail], FunctionHook]:
    """Make a guardrail of a function that returns the reason to block something, or nothing.

    `input`: the model does not get the message, and the run ends. `output`: the run ends, not ok.
    `tool`: the call does not run, and the model reads the reason; `tool` may be a pattern.
    """
    if kind == "tool":
        return partial(_tool_guardrail, tool)
    return partial(_input_guardrail if kind == "input" else _output_guardrail)


def _tool_guardrail(tool: str, function: CallGuardrail) -> FunctionHook:
    async def run(_event: HookEvent, call: Call | None) -> HookResult | None:
        reason = None if call is None else await call_function(function, call)
        return None if reason is None else HookResult(permission="deny", reason=reason)

    return FunctionHook(
        event="PreToolUse", name=name_of(function), run=run, matcher=tool, is_guardrail=True
    )


def _input_guardrail(function: TextGuardrail) -> FunctionHook:
    async def run(hook_event: HookEvent, _call: Call | None) -> HookResult | None:
        reason = await call_function(function, str(hook_event.fields["prompt"]))
        return None if reason is None else HookResult(blocked=True, reason=reason)

    name = name_of(function)
    return FunctionHook(event="UserPromptSubmit", name=name, run=run, is_guardrail=True)


def _output_guardrail(function: TextGuardrail) -> FunctionHook:
    async def run(hook_event: HookEvent, _call: Call | None) -> HookResult | None:
        text = str(hook_event.fields["last_assistant_message"])
        reason = await call_function(function, text)
        return None if reason is None else HookResult(stop=reason)

    return FunctionHook(event="Stop", name=name_of(function), run=run, is_guardrail=True)


async def run_function_hooks(
    hooks: Iterable[FunctionHook], hook_event: HookEvent, call: Call | None = None
) -> HookResult:
    """Run the hooks of an event one after the other and combine their results; the strictest
    wins."""
    result = EMPTY_HOOK_RESULT
    for item in hooks:
        if item.matches(hook_event):
            result = merge_hook_results(result, await _run_hook(item, hook_event, call))
    return result


async def _run_hook(item: FunctionHook, hook_event: HookEvent, call: Call | None) -> HookResult:
    failure = f"{item.name} took longer than {item.seconds:g} s"
    outcome = "timed_out"
    try:
        with anyio.move_on_after(item.seconds):
            result = await item.run(hook_event, call) or EMPTY_HOOK_RESULT
            return replace(result, hook_runs=(_hook_run(item, hook_event, result),))
    # This is the user's function: at a gate its failure denies, elsewhere it is only recorded.
    except Exception as error:  # noqa: BLE001
        outcome, failure = "failed", f"{item.name} failed: {type(error).__name__}: {error}"
    hook_run = HookRan(
        hook_event=item.event,
        handler=item.name,
        outcome=outcome,
        reason=failure,
        tool_use_id=hook_event.tool_use_id,
    )
    return HookResult(blocked=item.event in GATES, reason=failure, hook_runs=(hook_run,))


def _hook_run(item: FunctionHook, hook_event: HookEvent, result: HookResult) -> HookRan:
    is_refusal = result.blocked or result.permission == "deny" or result.stop is not None
    return HookRan(
        hook_event=item.event,
        handler=item.name,
        outcome="blocked" if is_refusal else "ok",
        reason=result.stop or result.reason,
        tool_use_id=hook_event.tool_use_id,
    )


def merge_hook_results(one: HookResult, other: HookResult) -> HookResult:
    """Both results combined: the strictest permission with its reason, the newest input."""
    if other == EMPTY_HOOK_RESULT:
        return one
    permissions = [item for item in _STRICTEST_FIRST if item in (one.permission, other.permission)]
    permission = (
        cast("Literal['allow', 'ask', 'defer', 'deny']", permissions[0]) if permissions else None
    )
    is_others = other.blocked or (other.permission is not None and other.permission == permission)
    first, second = (other, one) if is_others and not one.blocked else (one, other)
    return HookResult(
        permission=permission,
        reason=first.reason or second.reason,
        blocked=one.blocked or other.blocked,
        stop=one.stop or other.stop,
        context=one.context + other.context,
        messages=one.messages + other.messages,
        ignored=one.ignored + other.ignored,
        updated_input=one.updated_input if other.updated_input is None else other.updated_input,
        updated_output=one.updated_output if other.updated_output is None else other.updated_output,
        updates=one.updates + other.updates,
        interrupt=one.interrupt or other.interrupt,
        retry=one.retry or other.retry,
        hook_runs=one.hook_runs + other.hook_runs,
    )


V = TypeVar("V")
R = TypeVar("R")


async def call_function(function: Callable[[V], MaybeAwaitable[R]], value: V) -> R:
    """Call a function; one that is not async runs in a worker thread, as tools do."""
    if inspect.iscoroutinefunction(function):
        return await cast("Callable[[V], Awaitable[R]]", function)(value)
    returned = await to_thread.run_sync(partial(function, value), abandon_on_cancel=True)
    return await returned if inspect.isawaitable(returned) else cast("R", returned)


def name_of(function: Callable[..., object]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
