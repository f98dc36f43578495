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
    """What matchers are held against: a tool's name, or what brought the event about."""
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """What hooks read besides what every hook reads: `tool_name`, `tool_input`, `prompt`, ..."""
    tool_use_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """What all hooks of one occasion said, together: the strictest wins."""

    permission: Literal["allow", "ask", "defer", "deny"] | None = None
    reason: str | None = None
    blocked: bool = False
    """A hook said no, or could not say anything and the event is a gate."""
    stop: str | None = None
    """The whole run is to end; why."""
    context: tuple[str, ...] = ()
    """For the model to read."""
    messages: tuple[str, ...] = ()
    """For people to read."""
    ignored: tuple[str, ...] = ()
    """What of a hook's output has no effect, and why; for people."""
    updated_input: Mapping[str, object] | None = None
    updated_output: str | None = None
    updates: tuple[PermissionUpdate, ...] = ()
    interrupt: bool = False
    retry: bool = False
    """The model may be told that the denied call can be tried again."""
    hook_runs: tuple[HookRan, ...] = ()


EMPTY_HOOK_RESULT = HookResult()


class Hooks(Protocol):
    async def run(self, event: HookEvent) -> HookResult:
        """Ask every hook that wants to hear of this. Never raises: a gate's failure is a no."""
        ...


class NoHooks:
    async def run(self, event: HookEvent) -> HookResult:
        return EMPTY_HOOK_RESULT


class HookFolder(Struct, frozen=True, kw_only=True):
    """A plugin or a skill that brings hooks: they run from a copy of its folder."""

    name: str
    root: str
    data: str = ""
    """Where a plugin may store files that outlive an update of it."""
    kind: Literal["plugin", "skill"] = "plugin"
    plugin: str | None = None
    """The name of the plugin; a skill may be of one, too."""


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
