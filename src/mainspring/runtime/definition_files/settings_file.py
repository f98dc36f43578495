"""The settings file: its fields, and the merge of everything except rules and hooks (variables,
plugins, output style, status line) over all files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

from mainspring.harness.permissions.policy import Scope

RawSettings: TypeAlias = dict[str, object]
CustomizationKind: TypeAlias = Literal["skills", "agents", "hooks", "mcp"]
"""Kinds of parts that `strictPluginOnlyCustomization` can restrict to plugins."""


class PermissionSettings(Struct, frozen=True, rename="camel"):
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_mode: str | None = None
    additional_directories: tuple[str, ...] = ()
    disable_bypass_permissions_mode: str | None = None


class StatusLineSetting(Struct, frozen=True):
    type: Literal["command"]
    command: Annotated[str, Meta(min_length=1)]
    padding: int = 0


class SettingsFile(Struct, frozen=True, rename="camel"):
    """A settings file in Claude Code's format; `hooks_fail_open` is our own key."""

    permissions: PermissionSettings = PermissionSettings()
    hooks: RawSettings = {}
    sandbox: RawSettings = {}
    env: dict[str, str | int | float | bool] = {}
    api_key_helper: str | None = None
    enabled_plugins: dict[str, bool] = {}
    status_line: StatusLineSetting | None = None
    output_style: str | None = None
    disable_all_hooks: bool = False
    allow_managed_permission_rules_only: bool = False
    allow_managed_hooks_only: bool = False
    strict_plugin_only_customization: bool | tuple[CustomizationKind, ...] = False
    hooks_fail_open: bool | None = None
    disabled_mcpjson_servers: tuple[str, ...] = ()


_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SANDBOX_VARIABLES = re.compile(r"(?:HOME|TMPDIR|MAINSPRING_\w+|\w+_PROXY)", re.IGNORECASE)
"""Variables that the sandbox sets."""
_LOADS_CODE = re.compile(
    r"PATH|HOME|SHELL|XDG_\w+|LD_\w+|DYLD_\w+|GIT_\w+|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|IFS|PS4|PROMPT_COMMAND"
    r"|PYTHON\w+|NODE_\w+|PERL5?\w+|RUBY\w+|GEM_\w+|JAVA_TOOL_OPTIONS|CLAUDE_\w+"
)
"""Variables that make a program load other code, which could be a file that an agent wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    own_env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The variables that the user and the operator set."""
    api_key_helper: str | None = None
    status_line: StatusLineSetting | None = None
    output_style: str | None = None
    plugins: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Whether a plugin is enabled, by its name."""
    managed_plugins: frozenset[str] = frozenset()
    """Plugins that the operator has enabled: their hooks always run."""
    managed_hooks_only: bool = False
    """Whether only the hooks of the operator and of plugins that the operator enabled run."""
    is_without_hooks: bool = False
    """Whether a file disables all hooks except the operator's."""
    plugins_only: frozenset[CustomizationKind] = frozenset()
    """Kinds of parts that only plugins and the operator may add."""
    disabled_servers: frozenset[str] = frozenset()
    """MCP servers of the project that are not used."""

    @property
    def disabled_plugins(self) -> frozenset[str]:
        return frozenset(name for name, is_used in self.plugins.items() if not is_used)

    def permits_hooks(self, scope: str, plugin: str | None) -> bool:
        """Whether the operator's settings let hooks run that come from a scope or a plugin."""
        if scope == "managed":
            return True
        if self.is_without_hooks or plugin in self.disabled_plugins:
            return False
        if self.managed_hooks_only:
            return plugin is not None and plugin in self.managed_plugins
        return plugin is not None or "hooks" not in self.plugins_only

    @property
    def sandbox_env(self) -> dict[str, str]:
        """Variables for commands in the sandbox. Secrets are left out: they belong in the vault."""
        return {name: value for name, value in self.env.items() if is_for_sandbox(name)}

    @property
    def hook_env(self) -> dict[str, str]:
        """Variables for programs outside the sandbox. Variables of a project are never used: one
        could make a program load a file that an agent wrote, and no list of such variables is
        complete."""
        return {n: value for n, value in self.own_env.items() if not _LOADS_CODE.fullmatch(n)}

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(
            f"env.{name} looks like a secret, so commands in the sandbox do not get it;"
            " `mainspring vault set` stores one for them"
            for name in self.env
            if is_secret_name(name)
        )


def merge_preferences(files: Iterable[tuple[Scope, SettingsFile]]) -> Preferences:
    """Merge the files in order: a later file overrides an earlier one. The operator's is last."""
    merged = SettingsFile()
    env: dict[str, str] = {}
    own_env: dict[str, str] = {}
    plugins: dict[str, bool] = {}
    managed = SettingsFile()
    disabled_servers: set[str] = set()
    is_without_hooks = False
    for scope, settings in files:
        variables = dict(_variables(settings))
        env |= variables
        own_env |= variables if scope in ("managed", "user") else {}
        plugins |= {
            key.partition("@")[0]: is_used for key, is_used in settings.enabled_plugins.items()
        }
        is_without_hooks = is_without_hooks or settings.disable_all_hooks
        disabled_servers |= set(settings.disabled_mcpjson_servers)
        managed = settings if scope == "managed" else managed
        merged = SettingsFile(
            api_key_helper=settings.api_key_helper or merged.api_key_helper,
            status_line=settings.status_line or merged.status_line,
            output_style=settings.output_style or merged.output_style,
        )
    strict = managed.strict_plugin_only_customization
    kinds: tuple[CustomizationKind, ...] = get_args(CustomizationKind)
    return Preferences(
        env=env,
        own_env=own_env,
        api_key_helper=merged.api_key_helper,
        status_line=merged.status_line,
        output_style=merged.output_style,
        plugins=plugins,
        managed_plugins=frozenset(
            key.partition("@")[0] for key, is_used in managed.enabled_plugins.items() if is_used
        ),
        is_without_hooks=is_without_hooks,
        managed_hooks_only=managed.allow_managed_hooks_only,
        disabled_servers=frozenset(disabled_servers),
        plugins_only=frozenset((kinds if strict else ()) if isinstance(strict, bool) else strict),
    )


def _variables(settings: SettingsFile) -> Iterator[tuple[str, str]]:
    for name, value in settings.env.items():
        if _is_valid_name(name) and "\0" not in (text := _variable_text(value)):
            yield name, text


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def is_for_sandbox(name: str) -> bool:
    """Whether a settings file may set a variable of this name for programs in the sandbox."""
    return not (_SANDBOX_VARIABLES.fullmatch(name) or is_secret_name(name)) and _is_valid_name(name)


def _is_valid_name(name: str) -> bool:
    return _VARIABLE_NAME.fullmatch(name) is not None


def _variable_text(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
