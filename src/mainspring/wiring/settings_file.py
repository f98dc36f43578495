"""What is read of a settings file. What its values mean is `policies`' and `preferences`'."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

Raw: TypeAlias = dict[str, object]
Surface: TypeAlias = Literal["skills", "agents", "hooks", "mcp"]
"""Kinds of parts that `strictPluginOnlyCustomization` can restrict to plugins."""


class PermissionSettings(Struct, frozen=True, rename="camel"):
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_mode: str | None = None
    additional_directories: tuple[str, ...] = ()
    disable_bypass_permissions_mode: str | None = None


class StatusLine(Struct, frozen=True):
    type: Literal["command"]
    command: Annotated[str, Meta(min_length=1)]
    padding: int = 0


class SettingsFile(Struct, frozen=True, rename="camel"):
    """A settings file of Claude Code's; `hooks_fail_open` is ours."""

    permissions: PermissionSettings = PermissionSettings()
    hooks: Raw = {}
    sandbox: Raw = {}
    env: dict[str, str | int | float | bool] = {}
    api_key_helper: str | None = None
    enabled_plugins: dict[str, bool] = {}
    status_line: StatusLine | None = None
    output_style: str | None = None
    disable_all_hooks: bool = False
    allow_managed_permission_rules_only: bool = False
    allow_managed_hooks_only: bool = False
    strict_plugin_only_customization: bool | tuple[Surface, ...] = False
    hooks_fail_open: bool | None = None
