"""What the harness passes to hooks and what they return. `capabilities/hooks` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.events import HookRan, PermissionUpdate

HookEventName: TypeAlias = Literal[
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PermissionDenied",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Notification",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    event: HookEventName
    subject: str = ""
    """What matchers compare with: the name of a tool, or the cause of the event."""
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of this event besides the common ones: `tool_name`, `tool_input`, `prompt`, ..."""
    tool_use_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """The combined result of all hooks of one event; the strictest wins."""

    permission: Literal["allow", "ask", "defer", "deny"] | None = None
    reason: str | None = None
    blocked: bool = False
    """A hook refused, or failed on an event that needs its consent."""
    stop: str | None = None
    """Why the run must end; `None` if it goes on."""
    context: tuple[str, ...] = ()
    """Text for the model."""
    messages: tuple[str, ...] = ()
    """Text for the user."""
    ignored: tuple[str, ...] = ()
    """Parts of a hook's output that have no effect, and why; for the user."""
    updated_input: Mapping[str, object] | None = None
    updated_output: str | None = None
    updates: tuple[PermissionUpdate, ...] = ()
    interrupt: bool = False
    retry: bool = False
    """The model may retry the denied call."""
    hook_runs: tuple[HookRan, ...] = ()


EMPTY_HOOK_RESULT = HookResult()


class Hooks(Protocol):
    async def run(self, event: HookEvent) -> HookResult:
        """Run every hook of this event. Never raises: if a required hook fails, the result is a
        refusal."""
        ...


class HookFolder(Struct, frozen=True, kw_only=True):
    """A plugin or a skill that brings hooks: they run from a copy of its folder."""

    name: str
    root: str
    data: str = ""
    """Where a plugin may store files that outlive an update of it."""
    kind: Literal["plugin", "skill"] = "plugin"
    plugin: str | None = None
    """The name of the plugin, also for a skill that belongs to one."""


class HookSettings(Struct, frozen=True, kw_only=True):
    """The hooks of one file, not parsed yet."""

    scope: Literal["managed", "user", "project", "local", "session"]
    source: str
    hooks: Mapping[str, object]
    """The value of `hooks` in the file."""
    folder: HookFolder | None = None
    """The plugin or the skill that they belong to."""
    subagent: str | None = None
    """The subagent whose file contains them."""
