"""A plugin as its files describe it; `plugins` reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.json_file import JsonObject, as_list, as_object
from mainspring.runtime.definition_files.scopes import PartKind, PartLocation, Scope
from mainspring.runtime.mcp_server import McpServer

PluginKind: TypeAlias = Literal["agent-plugins", "claude", "openhands"]

DATA_FOLDER = "plugin-data"
_NOT_A_NAME = re.compile(r"[^a-z0-9.-]+")
_REPEATED = re.compile(r"([.-])[.-]+")


class PluginHooks(Struct, frozen=True):
    file: str
    """For display."""
    hooks: JsonObject
    """By event, as in `hooks` of a settings file."""

    @property
    def count(self) -> int:
        """The number of handlers."""
        groups = (group for value in self.hooks.values() for group in as_list(value) or ())
        return sum(len(as_list((as_object(group) or {}).get("hooks")) or ()) for group in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    name: str
    root: Path
    scope: Scope
    display_path: str
    """Its folder, for display."""
    kind: PluginKind = "claude"
    version: str | None = None
    description: str = ""
    homepage: str | None = None
    license: str | None = None
    manifest: JsonObject = field(default_factory=dict[str, object])
    """Unchanged."""
    is_rejected: bool = False
    """The manifest is invalid: nothing in the plugin may be used."""
    skills: tuple[Path, ...] = ()
    """Folders with a `SKILL.md`."""
    agents: tuple[Path, ...] = ()
    """Files, or folders of them."""
    commands: tuple[Path, ...] = ()
    servers: tuple[McpServer, ...] = ()
    hooks: tuple[PluginHooks, ...] = ()
    """They run only if the user has trusted the plugin in its current state."""
    findings: tuple[Finding, ...] = ()

    @property
    def places(self) -> tuple[PartLocation, ...]:
        """For `Scopes.plugins`: its parts are called `plugin:name`."""
        parts: dict[PartKind, tuple[Path, ...]] = {
            "skills": self.skills,
            "agents": self.agents,
            "commands": self.commands,
        }
        return tuple(
            PartLocation(path, self.scope, self.name, self.root, part)
            for part, paths in parts.items()
            for path in paths
        )

    @property
    def data(self) -> Path:
        """The folder for data that survives its updates."""
        return self.root.parent.parent / DATA_FOLDER / self.name

    @property
    def is_empty(self) -> bool:
        return not (self.places or self.servers or self.hooks)


def plugin_name(text: str) -> str:
    """The valid name of a plugin, and of its folder, that is closest to a text."""
    plain = _REPEATED.sub(r"\1", _NOT_A_NAME.sub("-", text[:200].lower()))
    return plain[:64].strip(".-") or "plugin"
