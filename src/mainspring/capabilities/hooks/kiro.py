"""Parses Kiro's hook files, `.kiro/hooks/<name>.json` of version v1, into the same records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.capabilities.hooks.config import (
    CommandHook,
    Handler,
    Hook,
    HookConfig,
    HookReader,
    NonEmptyText,
    ReminderHook,
    Scope,
    Seconds,
)


class _RunCommand(Struct, frozen=True, kw_only=True, tag_field="type", tag="command"):
    command: NonEmptyText


class _PromptAgent(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    prompt: NonEmptyText


_Action: TypeAlias = _RunCommand | _PromptAgent


class _KiroHook(Struct, frozen=True, kw_only=True):
    trigger: str
    action: _Action
    name: str = ""
    matcher: str | None = None
    timeout: Seconds | None = None
    enabled: bool = True


class _File(Struct, frozen=True, kw_only=True):
    version: Literal["v1"]
    hooks: tuple[dict[str, object], ...] = ()


def parse_kiro(raw: Mapping[str, object], *, scope: Scope, source: str) -> HookConfig:
    """The hooks of one Kiro file; triggers that do not exist here give warnings.

    Raises:
        InvalidInput: a hook is invalid; it says in which file and place.
    """
    reader = HookReader(source)
    file = reader.converted(dict(raw), _File, "the file")
    hooks: list[Hook] = []
    for index, raw_hook in enumerate(file.hooks):
        hook = _kiro_hook(reader, raw_hook, f"hooks[{index}]")
        if hook is not None:
            hooks.append(hook)
    warnings = tuple(reader.warnings)
    return HookConfig(scope=scope, source=source, hooks=tuple(hooks), warnings=warnings)


def _kiro_hook(reader: HookReader, raw: dict[str, object], place: str) -> Hook | None:
    kiro_hook = reader.converted(raw, _KiroHook, place)
    if not kiro_hook.enabled:
        return None
    event = reader.event(kiro_hook.trigger, place)
    if event is None:
        return None
    return reader.hook(event, kiro_hook.matcher or "", _kiro_handler(kiro_hook), place)


def _kiro_handler(kiro_hook: _KiroHook) -> Handler:
    match kiro_hook.action:
        case _RunCommand(command=command):
            return CommandHook(command=command, timeout_seconds=kiro_hook.timeout)
        case _PromptAgent(prompt=prompt):
            return ReminderHook(text=prompt, timeout_seconds=kiro_hook.timeout)
