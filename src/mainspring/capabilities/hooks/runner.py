"""All hooks of a session: which of them run for an event, and their combined result.

If a hook that is asked before an action fails, the action is denied. Hooks of an untrusted scope
never run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from mainspring.capabilities.hooks.config import (
    TOOL_EVENTS,
    TRUSTED_SCOPES,
    AgentHook,
    CommandHook,
    Handler,
    Hook,
    HookConfig,
    HookFolder,
    Matcher,
    PromptHook,
    Scope,
    compile_matcher,
    names_with_aliases,
    sort_by_scope,
)
from mainspring.capabilities.hooks.folder_copies import FolderCopies
from mainspring.capabilities.hooks.handlers import (
    BackgroundHooks,
    HandlerCall,
    HandlerPorts,
    HandlerResult,
    Wake,
)
from mainspring.capabilities.hooks.verdict import GATE_EVENTS, HookFailure, combine
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookEventName, HookResult

MatchesRule: TypeAlias = Callable[[str, str, Mapping[str, object]], bool]
"""Whether a permission rule matches a call of this tool with this input."""

_EVENTS_WITHOUT_MATCHER = frozenset[HookEventName](("UserPromptSubmit", "Stop", "PostToolBatch"))
"""These events have nothing to match: every hook runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookPolicy:
    trusted: frozenset[Scope] = TRUSTED_SCOPES
    """Add `project` and `local` for a project whose files are trusted."""
    fail_open: bool = False
    """As in Claude Code: if a hook fails, the action that it guards is allowed. Not recommended."""
    max_seconds: float = 600.0
    """The longest time limit that a handler can have."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other products' names of tools (`Bash`) to ours (`bash`). Hooks match either, and get the
    first alias as the tool's name, since published hooks compare with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSession:
    """What hooks need from their session."""

    fields: Callable[[], Mapping[str, object]]
    """The current fields for every hook: `session_id`, `cwd`, `permission_mode` and so on."""
    matches_rule: MatchesRule = lambda _rule, _tool, _input: True
    prepare: Callable[[], Awaitable[None]] | None = None
    """Called before hooks run, and only if some do: updates what `fields` refers to."""
    wake: Wake | None = None
    ran_before: Collection[tuple[str, str]] = ()
    """Event and handler of successful `hook.ran` facts: hooks that run only once have run."""
    active_skills: Callable[[], Collection[str]] = tuple
    """Names of the skills in use, whose hooks run."""
    warn: Callable[[str], None] = lambda _: None
    """Warns people once about parts of a hook's output that have no effect."""
    show: Callable[[str], None] = lambda _: None
    """Shows people the messages of hooks, each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BoundHook:
    event: HookEventName
    wants: Matcher
    handler: Handler
    seconds: float
    folder: HookFolder | None = None

    @property
    def name(self) -> tuple[str, str]:
        return self.event, self.handler.label

    @property
    def skill(self) -> str | None:
        is_skill = self.folder is not None and self.folder.kind == "skill"
        return self.folder.name if is_skill and self.folder is not None else None


class HookRunner:
    """Use it with `async with`: hooks in the background run until the end of the block."""

    def __init__(
        self,
        configs: Sequence[HookConfig],
        session: HookSession,
        ports: HandlerPorts,
        *,
        policy: HookPolicy | None = None,
    ) -> None:
        self._session = session
        self._copies = FolderCopies()
        around = replace(ports.environment, copies=self._copies)
        self._ports = replace(ports, environment=around)
        self._policy = policy or HookPolicy()
        self._ran_once = set(session.ran_before)
        self._background = BackgroundHooks(session.wake)
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        ordered = sort_by_scope(tuple(configs))
        self.warnings = _warnings(ordered, self._policy.trusted)
        """Displayed at the session's start."""
        trusted = [config for config in ordered if config.scope in self._policy.trusted]
        self._hooks = [
            self._wire(hook, config.folder) for config in trusted for hook in config.hooks
        ]

    @property
    def has_hooks(self) -> bool:
        """Whether there are any hooks."""
        return bool(self._hooks)

    @property
    def events(self) -> frozenset[HookEventName]:
        """The events that have hooks."""
        return frozenset(hook.event for hook in self._hooks)

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._group is not None:
            self._group.cancel_scope.cancel()
        self._group = None
        await self._stack.aclose()
        await anyio.to_thread.run_sync(self._copies.close)

    async def run(self, event: HookEvent) -> HookResult:
        late = self._background.take(event.event)
        hooks = self._matching_hooks(event)
        if not hooks:
            return self._show_messages(combine(event.event, late)) if late else EMPTY_HOOK_RESULT
        if self._session.prepare is not None:
            await self._session.prepare()
        payload = self._payload(event)
        if isinstance(payload, HookFailure):
            answers = [
                HandlerResult(label=item.handler.label, event=event, reply=payload, milliseconds=0)
                for item in hooks
            ]
        else:
            question = HandlerCall(event=event, payload=payload, ports=self._ports)
            answers = await self._answers(question, hooks)
        results = [self._to_result(answer) for answer in answers]
        return self._show_messages(combine(event.event, [*late, *results]))

    def _show_messages(self, result: HookResult) -> HookResult:
        for message in result.messages:
            self._session.show(message)
        return result

    def _wire(self, hook: Hook, folder: HookFolder | None) -> _BoundHook:
        seconds = hook.handler.timeout_seconds or _default_seconds(hook.handler)
        return _BoundHook(
            event=hook.event,
            wants=compile_matcher("" if hook.event in _EVENTS_WITHOUT_MATCHER else hook.matcher),
            handler=hook.handler,
            seconds=min(seconds, self._policy.max_seconds),
            folder=folder,
        )

    def _matching_hooks(self, event: HookEvent) -> list[_BoundHook]:
        is_call = event.event in TOOL_EVENTS
        names = names_with_aliases(event.subject, self._policy.aliases if is_call else {})
        matching: list[_BoundHook] = []
        for hook in self._hooks:
            if hook.event != event.event or not hook.wants(names):
                continue
            same = ((other.handler, other.folder) for other in matching)
            is_duplicate = (hook.handler, hook.folder) in same
            is_spent = hook.handler.once and hook.name in self._ran_once
            if not is_duplicate and not is_spent and self._applies(hook, event):
                matching.append(hook)
        return matching

    def _applies(self, hook: _BoundHook, event: HookEvent) -> bool:
        if hook.skill is not None and hook.skill not in self._session.active_skills():
            return False
        if hook.handler.condition is None:
            return True
        if event.event not in TOOL_EVENTS:
            return False
        try:
            call = msgspec.convert(event.fields.get("tool_input"), dict[str, object])
            return self._session.matches_rule(hook.handler.condition, event.subject, call)
        except Exception:  # noqa: BLE001 - a rule that cannot be judged must not switch a gate off
            return True

    def _payload(self, event: HookEvent) -> bytes | HookFailure:
        try:
            data: dict[str, object] = {**self._session.fields(), **event.fields}
            data["hook_event_name"] = event.event
            if event.event in TOOL_EVENTS:
                data["tool_name"] = names_with_aliases(event.subject, self._policy.aliases)[:2][-1]
            if event.tool_use_id is not None:
                data["tool_use_id"] = event.tool_use_id
            return msgspec.json.encode(data)
        except Exception as error:  # noqa: BLE001 - hooks that cannot be called have failed; a gate closes
            return HookFailure(f"could not receive the event: {type(error).__name__}")

    async def _answers(self, call: HandlerCall, hooks: Sequence[_BoundHook]) -> list[HandlerResult]:
        """Run all handlers concurrently; those in the background are only started."""
        answers: dict[int, HandlerResult] = {}

        async def ask(index: int, hook: _BoundHook) -> None:
            own_call = call.in_folder(hook.folder)
            answers[index] = await own_call.run(hook.handler, seconds=hook.seconds)
            if hook.handler.once and answers[index].fact().outcome != "ok":
                self._ran_once.discard(hook.name)  # failed: it may run again

        async with anyio.create_task_group() as group:
            for index, hook in enumerate(hooks):
                if hook.handler.once:
                    self._ran_once.add(hook.name)
                if not isinstance(hook.handler, CommandHook) or not hook.handler.in_background:
                    group.start_soon(ask, index, hook)
                    continue
                own_call = call.in_folder(hook.folder)
                self._background.start(self._group, own_call, hook.handler, seconds=hook.seconds)
        return [answers[index] for index in sorted(answers)]

    def _to_result(self, result: HandlerResult) -> HookResult:
        event, fact = result.event.event, result.fact()
        match result.reply:
            case HookFailure(reason=reason, is_changed=is_changed):
                failure = f"hook {result.label} {reason}"
                if event in GATE_EVENTS and (is_changed or not self._policy.fail_open):
                    reason = f"{failure}, so this is denied"
                    return HookResult(blocked=True, reason=reason, hook_runs=(fact,))
                return HookResult(messages=(failure,), hook_runs=(fact,))
            case HookResult() as reply:
                for what in reply.ignored:
                    self._session.warn(f"hook {result.label}: {what}")
                return replace(reply, hook_runs=(fact,))


def _default_seconds(handler: Handler) -> float:
    match handler:
        case PromptHook():
            return 30.0
        case AgentHook():
            return 60.0
        case _:
            return 600.0


def _warnings(configs: Sequence[HookConfig], trusted: frozenset[Scope]) -> tuple[str, ...]:
    warnings = [warning for config in configs for warning in config.warnings]
    held_back = [
        f"{config.source}: its {len(config.hooks)} hooks do not run: "
        f"files of the scope {config.scope} are not trusted here"
        for config in configs
        if config.hooks and config.scope not in trusted
    ]
    return (*warnings, *held_back)
