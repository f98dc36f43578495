"""Parses and validates hooks of settings files, in a form that can be stored. Running them is the
runner's job.

The format is Claude Code's: `{"hooks": {Event: [{"matcher": ..., "hooks": [handler, ...]}]}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec
import re2
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.hook import HookEventName, HookFolder, HookSettings

Matcher: TypeAlias = Callable[[Collection[str]], bool]
"""Whether one of these names matches."""

_LIST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_- ,|")


def compile_matcher(matcher: str) -> Matcher:
    """Everything for an empty matcher or `*`; a list of exact names; or else an unanchored
    expression.

    Raises:
        InvalidInput: an expression that RE2 does not support, or a list without names.
    """
    if matcher in ("", "*"):
        return _all
    if _LIST.issuperset(matcher):
        matching_names = {name.strip() for name in matcher.replace(",", "|").split("|")} - {""}
        if not matching_names:
            raise InvalidInput(f"matcher {matcher!r} names nothing, so its hooks would never run")
        return lambda names: not matching_names.isdisjoint(names)
    pattern = _compile(matcher)
    return lambda names: any(pattern.search(name) is not None for name in names)


def names_with_aliases(name: str, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """A tool's own name, then its aliases; `aliases` maps other products' names to ours."""
    return (name, *(alias for alias, own in aliases.items() if own == name))


def _all(_: Collection[str]) -> bool:
    return True


def _compile(matcher: str) -> re2.Pattern[str]:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(matcher, options)
    except (re2.error, UnicodeEncodeError) as error:
        what = f"matcher {matcher!r} is not an expression that RE2 knows: {error}"
        raise InvalidInput(what) from error


Scope: TypeAlias = Literal["managed", "user", "project", "local"]
"""The kinds of settings files, the highest priority first."""

SCOPES: tuple[Scope, ...] = get_args(Scope)
ALL_SCOPES = frozenset[Scope](SCOPES)
TRUSTED_SCOPES = frozenset[Scope](("managed", "user"))
"""Hooks of `project` and `local` run only in a project whose files are trusted."""
EVENTS: tuple[HookEventName, ...] = get_args(HookEventName)
TOOL_EVENTS = frozenset[HookEventName](
    ("PreToolUse", "PermissionRequest", "PermissionDenied", "PostToolUse", "PostToolUseFailure")
)

_NEVER_RAISED = frozenset(
    (
        *("Setup", "InstructionsLoaded", "UserPromptExpansion", "MessageDisplay", "ConfigChange"),
        *("TaskCreated", "TaskCompleted", "TeammateIdle", "WorktreeCreate", "WorktreeRemove"),
        *("CwdChanged", "DirectoryAdded", "FileChanged", "Elicitation", "ElicitationResult"),
    )
)
"""Events of Claude Code that have no counterpart here."""

T = TypeVar("T")
NonEmptyText: TypeAlias = Annotated[str, Meta(min_length=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]


class _Handler(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    rename={
        "condition": "if",
        "timeout_seconds": "timeout",
        "status_message": "statusMessage",
        "is_async": "async",
        "async_rewake": "asyncRewake",
        "allowed_env_vars": "allowedEnvVars",
    },
):
    condition: str | None = None
    """A permission rule that the call must match."""
    timeout_seconds: Seconds | None = None
    status_message: str | None = None
    once: bool = False


class CommandHook(_Handler, frozen=True, kw_only=True, tag="command"):
    command: NonEmptyText
    args: tuple[str, ...] | None = None
    """If set, `command` is a program and no shell is used."""
    is_async: bool = False
    async_rewake: bool = False
    shell: Literal["bash", "powershell"] = "bash"

    @property
    def label(self) -> str:
        return _short(" ".join((self.command, *(self.args or ()))))

    @property
    def in_background(self) -> bool:
        return self.is_async or self.async_rewake


class HttpHook(_Handler, frozen=True, kw_only=True, tag="http"):
    url: Annotated[str, Meta(pattern="^https?://")]
    headers: dict[str, str] = {}
    allowed_env_vars: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        address = urlsplit(self.url)  # without user and query, which may be secret
        return _short(f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}")


class McpToolHook(_Handler, frozen=True, kw_only=True, tag="mcp_tool"):
    server: NonEmptyText
    tool: NonEmptyText
    input: dict[str, object] = {}

    @property
    def label(self) -> str:
        return _short(f"mcp__{self.server}__{self.tool}")


class PromptHook(_Handler, frozen=True, kw_only=True, tag="prompt"):
    prompt: NonEmptyText
    model: str | None = None

    @property
    def label(self) -> str:
        return _short(f"prompt: {self.prompt}")


class AgentHook(_Handler, frozen=True, kw_only=True, tag="agent"):
    prompt: NonEmptyText
    model: str | None = None

    @property
    def label(self) -> str:
        return _short(f"agent: {self.prompt}")


class ReminderHook(_Handler, frozen=True, kw_only=True, tag="remind"):
    """Text for the model; Kiro's `agent` action."""

    text: NonEmptyText

    @property
    def label(self) -> str:
        return _short(f"remind: {self.text}")


Handler: TypeAlias = CommandHook | HttpHook | McpToolHook | PromptHook | AgentHook | ReminderHook
_HANDLERS: dict[str, type[Handler]] = {
    "command": CommandHook,
    "http": HttpHook,
    "mcp_tool": McpToolHook,
    "prompt": PromptHook,
    "agent": AgentHook,
    "remind": ReminderHook,
}
_TAG = ("type",)


class Hook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    event: HookEventName
    handler: Handler
    matcher: str = ""


class HookConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hooks of one file. A session keeps the hooks that it started with."""

    scope: Scope
    source: str
    hooks: tuple[Hook, ...] = ()
    warnings: tuple[str, ...] = ()
    folder: HookFolder | None = None
    """The plugin or the skill that they come from. A skill's hooks run only while it is used."""
    subagent: str | None = None
    """The type of subagent whose file defines them: they run only on its threads."""


class _Group(Struct, frozen=True, kw_only=True):
    hooks: tuple[dict[str, object], ...]
    matcher: str | None = None


def parse_hooks(raw: Mapping[str, object], *, scope: Scope, source: str) -> HookConfig:
    """Parse the hooks of a settings file whose JSON is `raw`; other settings are ignored.

    Raises:
        InvalidInput: a hook is invalid; it says in which file, event and place.
    """
    reader = HookReader(source)
    events = reader.converted(raw.get("hooks", {}), dict[str, object], "hooks")
    hooks = [hook for name, groups in events.items() for hook in _parse_event(reader, name, groups)]
    warnings = tuple(reader.warnings)
    return HookConfig(scope=scope, source=source, hooks=tuple(hooks), warnings=warnings)


def for_subagent(config: HookConfig, name: str) -> HookConfig:
    """The hooks of a subagent's own file: its `Stop` is a `SubagentStop`."""
    hooks = tuple(
        msgspec.structs.replace(hook, event="SubagentStop") if hook.event == "Stop" else hook
        for hook in config.hooks
    )
    return msgspec.structs.replace(config, hooks=hooks, subagent=name)


def sort_by_scope(configs: tuple[HookConfig, ...]) -> list[HookConfig]:
    """Sort by priority of scope; files of one scope keep their order."""
    return sorted(configs, key=lambda config: SCOPES.index(config.scope))


@dataclass(slots=True)
class HookReader:
    """Validates one file, and collects warnings."""

    source: str
    warnings: list[str] = field(default_factory=list[str])

    def converted(self, value: object, kind: type[T], place: str) -> T:
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, RecursionError) as error:
            raise self.wrong(place, str(error)) from error

    def warn(self, place: str, what: str) -> None:
        self.warnings.append(f"{self.source}: {place}: {what}")

    def wrong(self, place: str, what: str) -> InvalidInput:
        return InvalidInput(f"{self.source}: {place}: {what}")

    def event(self, name: str, place: str) -> HookEventName | None:
        for event in EVENTS:
            if event == name:
                return event
        if name in _NEVER_RAISED:
            self.warn(place, f"{name} never happens here, so its hooks do not run")
            return None
        near = get_close_matches(name, EVENTS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        self.warn(place, f"{name} is not a known event, so its hooks do not run{hint}")
        return None

    def hook(self, event: HookEventName, matcher: str, handler: Handler, place: str) -> Hook:
        """Build a hook from its parsed parts, and check that they fit together."""
        try:
            compile_matcher(matcher)
        except InvalidInput as error:
            raise self.wrong(place, str(error)) from error
        if isinstance(handler, CommandHook) and handler.in_background and event == "PreToolUse":
            self.warn(place, "it runs in the background, so it cannot block anything")
        if handler.condition is not None and event not in TOOL_EVENTS:
            self.warn(place, f"`if` is about tool calls, so it never runs on {event}")
        return Hook(event=event, matcher=matcher, handler=handler)


def _parse_event(reader: HookReader, name: str, raw: object) -> list[Hook]:
    event = reader.event(name, f"hooks.{name}")
    if event is None:
        return []
    hooks: list[Hook] = []
    for number, raw_group in enumerate(reader.converted(raw, list[object], f"hooks.{name}")):
        place = f"hooks.{name}[{number}]"
        group = reader.converted(raw_group, _Group, place)
        for index, raw_handler in enumerate(group.hooks):
            where = f"{place}.hooks[{index}]"
            handler = _parse_handler(reader, raw_handler, where)
            if handler is not None:
                hooks.append(reader.hook(event, group.matcher or "", handler, where))
    return hooks


def _parse_handler(reader: HookReader, raw: dict[str, object], place: str) -> Handler | None:
    kind = raw.get("type")
    if not isinstance(kind, str):
        raise reader.wrong(place, "`type` must say what it is: " + ", ".join(_HANDLERS))
    handler_type = _HANDLERS.get(kind)
    if handler_type is None:
        reader.warn(place, f"{kind} is not a known type of hook, so it does not run")
        return None
    unknown = raw.keys() - {*handler_type.__struct_encode_fields__, *_TAG}
    if unknown:
        reader.warn(place, f"{', '.join(sorted(unknown))}: not known, does nothing")
    handler = reader.converted(raw, handler_type, place)
    try:
        _ = handler.label
    except ValueError as error:
        raise reader.wrong(place, f"`url` is not a URL: {error}") from error
    return handler


def _short(text: str, *, max_chars: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def read_hooks(settings: Iterable[HookSettings]) -> tuple[tuple[msgspec.Raw, ...], tuple[str, ...]]:
    """The hooks as the log stores them, and warnings about them.

    Raises:
        InvalidInput: those of a settings file are invalid.
    """
    configs: list[HookConfig] = []
    warnings: list[str] = []
    for item in settings:
        if item.scope != "session":
            try:
                configs.append(_parse_config(item, item.scope))
            except InvalidInput as error:
                if item.folder is None and item.subagent is None:
                    raise
                # an error in a plugin, skill or subagent does not disable the other hooks
                warnings.append(f"{error}; none of its hooks run")
    configs_json = tuple(msgspec.Raw(msgspec.json.encode(config)) for config in configs)
    warnings += [warning for config in configs for warning in config.warnings]
    return configs_json, tuple(warnings)


def describe_hooks(
    fields: Mapping[str, object], source: str
) -> tuple[Sequence[str], Sequence[str]]:
    """The hooks of a file, one line each, and warnings. Raises: InvalidInput."""
    config = parse_hooks(fields, scope="project", source=source)
    return [
        f"{hook.event}{f' {hook.matcher}' if hook.matcher else ''}: {hook.handler.label}"
        for hook in config.hooks
    ], config.warnings


def permitted_hooks(
    stored: Iterable[msgspec.Raw],
    is_permitted: Callable[[str, str | None], bool],
    warn: Callable[[str], None],
) -> list[HookConfig]:
    """The stored hooks that the settings permit by scope and plugin."""
    permitted: list[HookConfig] = []
    for config in (msgspec.json.decode(hook, type=HookConfig) for hook in stored):
        if is_permitted(config.scope, config.folder and config.folder.plugin):
            permitted.append(config)
        elif config.hooks:
            warn(f"{config.source}: its hooks do not run: the settings do not allow them")
    return permitted


def _parse_config(settings: HookSettings, scope: Scope) -> HookConfig:
    config = parse_hooks({"hooks": settings.hooks}, scope=scope, source=settings.source)
    if settings.subagent is not None:
        config = for_subagent(config, settings.subagent)
    return msgspec.structs.replace(config, folder=settings.folder)
