"""The toolbox of one thread: the tools it may call, the authorizer that judges the calls, and the
sandbox, snapshots and worktrees behind them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeAlias

from mainspring.core.events import KnownPayload
from mainspring.core.hook import HookEventName
from mainspring.core.model import ToolSpec
from mainspring.core.ports import SandboxInfo, Snapshots, Worktrees
from mainspring.core.tool import Tool
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.harness.state.thread import Thread

_MAX_NAMED = 50  # tools in the answer to a call of an unknown one


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChanges:
    """Changes of a thread's tools while it runs."""

    tools: Mapping[str, Tool]
    """New tools, and changed ones."""
    removed: frozenset[str] = frozenset()
    loaded: tuple[str, ...] = ()
    """New tools whose definitions the model gets at once; the others are deferred."""
    note: str
    """A note about the changes, for the model."""


FindToolChanges: TypeAlias = Callable[[], Awaitable[ToolChanges | None]] | None


def compare_tools(
    before: Mapping[str, Tool], after: Mapping[str, Tool], *, is_deferred: bool
) -> ToolChanges | None:
    """`None` if nothing has changed. `is_deferred`: the model searches for new tools."""
    new = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    changed = [name for name in after if name in before and after[name].spec != before[name].spec]
    if not (new or removed or changed):
        return None
    hint = "; load them with tool_search" if is_deferred else ""
    parts = {f"New{hint}": new, "Removed": removed, "Changed": changed}
    lines = [
        f"{what}: {', '.join(names[:_MAX_NAMED])}{' ...' if len(names) > _MAX_NAMED else ''}."
        for what, names in parts.items()
        if names
    ]
    return ToolChanges(
        tools={name: after[name] for name in (*new, *changed)},
        removed=frozenset(removed),
        loaded=() if is_deferred else tuple(new),
        note="\n".join(["An MCP server has changed its tools.", *lines]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    authorizer: Authorizer
    tools: Sequence[Tool] = ()
    client_tools: Sequence[ToolSpec] = ()
    """Tools that the client runs itself."""
    client_input_checks: Mapping[str, Callable[[Mapping[str, object]], str | None]] = field(
        default_factory=dict[str, Callable[[Mapping[str, object]], str | None]]
    )
    """Functions that return the error in an input of a client tool, for the model."""
    denied: frozenset[str] = frozenset()
    """Names of the agent's own tools that are hidden from the model."""
    deferred: frozenset[str] = frozenset()
    """Names of tools that the model must load with `tool_search` before it can call them."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names that models use for our tools, each with our name."""
    sandbox_info: SandboxInfo | None = None
    """The sandbox that tools run programs in."""
    snapshots: Snapshots | None = None
    environment: str = ""
    """The description of the workspace in the prompt."""
    prompt_prefix: PromptPrefix | None = None
    """The part of the prompt before the messages; by default it is built from the agent."""
    pending_facts: list[KnownPayload] = field(default_factory=list[KnownPayload])
    """Facts that the sandbox collects while a call runs; they are recorded with its result."""
    facts: Sequence[KnownPayload] = ()
    """Facts to record before the thread runs."""
    for_thread: Callable[..., AbstractAsyncContextManager[Toolbox]] | None = None
    """Opens a toolbox with the same sandbox, rules and hooks for another thread of the session.
    It takes the runtime's `SetupRequest`, which this layer cannot name."""
    stop_objection: Callable[[Thread], str | None] | None = None
    """Why the model may not stop yet, as a text for it; `None` if it may."""
    recall: Callable[[str], Awaitable[Sequence[KnownPayload]]] | None = None
    """Finds memories about a message of the user; recorded with the message."""
    before_compact: Callable[[str, str], Awaitable[Sequence[KnownPayload]]] | None = None
    """Saves what is worth keeping before messages are removed from the context. It gets the goal
    and the working state, and returns events to record."""
    before_idle: Callable[[], Awaitable[None]] | None = None
    """Runs when the thread has ended, before the log records that it is idle."""
    reschedule: Callable[[int], Awaitable[None]] | None = None
    """Has the session run again later, if no model answers; it gets the number of earlier times.
    Without it the run itself waits, and then fails."""
    on_call_announced: Callable[[str], None] | None = None
    """Called with the name of a tool when the model begins to call it, to prepare for the call
    while the model writes the input."""
    message_context: Callable[[str], Awaitable[Sequence[str]]] | None = None
    """Text that a user's message refers to, such as a resource; the model reads it after the
    message."""
    changes: FindToolChanges = None
    """Called before each turn: returns changes of the tools."""
    hook_events: frozenset[HookEventName] = frozenset()
    """The events for which the settings have hooks."""
    worktrees: Worktrees | None = None
    """Separate working folders for threads that must not share one."""
    _by_name: Mapping[str, Tool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {tool.spec.name: tool for tool in self.tools})

    def find(self, name: str) -> Tool | None:
        """The tool of that name or alias."""
        return self._by_name.get(name) or self._by_name.get(self.aliases.get(name, ""))

    def is_client_tool(self, name: str) -> bool:
        return any(spec.name == name for spec in self.client_tools)
