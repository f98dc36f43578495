"""Reads plugins: packages of skills, agents, commands, hooks and MCP servers.

Formats: Agent Plugins 1.0.0 (`plugin.json`), Claude Code (`.claude-plugin/plugin.json`) and
OpenHands (`.plugin/plugin.json`). A faulty part is reported and skipped; the rest is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec
from msgspec import Struct, field

from mainspring.core.errors import InvalidInput
from mainspring.runtime.agent_folder import agent_plugins_spec
from mainspring.runtime.agent_folder.mcp_file import (
    SERVERS,
    McpServer,
    ServerTable,
    read_table,
    table_of,
)
from mainspring.runtime.agent_folder.plugin import Plugin, PluginHooks, PluginKind, plugin_name
from mainspring.runtime.definition_files.finding import Finding, Level
from mainspring.runtime.definition_files.json_file import (
    JsonFile,
    JsonObject,
    as_list,
    as_object,
    is_inside,
    read_object,
)
from mainspring.runtime.definition_files.scopes import PartLocation, Scope

FOLDER = ".mainspring/plugins"
PORTABLE = "plugin.json"
VENDOR_MANIFESTS: dict[str, PluginKind] = {
    ".claude-plugin/plugin.json": "claude",
    ".plugin/plugin.json": "openhands",
}
_MAX_ENTRIES = 2_000
"""In one folder."""
_MAX_PATH = 1_000  # characters
_TEXTS = ("version", "description", "homepage", "license")
_SUPPORTED_KEYS = {"$schema", "name", "author", "repository", "keywords", "strict", *_TEXTS} | {
    *("skills", "agents", "commands", "hooks", "mcpServers")
}
UNSUPPORTED_KEYS = {
    *("lspServers", "outputStyles", "workflows", "userConfig", "channels", "settings", "types"),
    *("dependencies", "defaultEnabled", "experimental", "themes", "monitors"),
}
_DISPLAY_KEYS = {
    *("displayName", "metadata", "icon", "documentationUrl", "supportUrl"),
    *("privacyPolicyUrl", "termsOfServiceUrl"),
}
_UNSUPPORTED_ENTRIES = (
    *(".lsp.json", "output-styles", "workflows", "themes", "monitors", "bin", "settings.json"),
)


class InstalledPlugins(Struct, frozen=True):
    plugins: tuple[Plugin, ...]
    """The plugins in use; if two have the same name, the user's one is used."""
    findings: tuple[Finding, ...]

    @property
    def places(self) -> tuple[PartLocation, ...]:
        return tuple(place for plugin in self.plugins for place in plugin.places)

    @property
    def servers(self) -> tuple[McpServer, ...]:
        return tuple(server for plugin in self.plugins for server in plugin.servers)


def installed_plugins(
    folder: Path, home: Path | None, *, disabled: Collection[str] = ()
) -> InstalledPlugins:
    """The plugins of a user and of a project, with findings. Plugins that the settings disable are
    skipped.

    Raises:
        InvalidInput: a folder of plugins cannot be read.
    """
    by_name: dict[str, Plugin] = {}
    findings: list[Finding] = []
    bases: list[tuple[Path | None, Scope, str]] = [(home, "user", "~/"), (folder, "project", "")]
    for base, scope, prefix in bases:
        for root in [] if base is None else _folders(base / FOLDER):
            if scope == "project" and not is_inside(root, folder):
                what = "a link that leads out of the project: skipped"
                findings.append(Finding(level="error", file=f"{FOLDER}/{root.name}", what=what))
                continue
            plugin = read_plugin(root, scope, display_path=f"{prefix}{FOLDER}/{root.name}")
            if plugin.name in disabled:
                what = f"{plugin.name} is not used: enabledPlugins in the settings disables it"
                findings.append(Finding(level="note", file=plugin.display_path, what=what))
                continue
            findings += plugin.findings
            if plugin.name in by_name:
                what = f"{plugin.name} in {by_name[plugin.name].display_path} is used instead"
                findings.append(Finding(level="note", file=plugin.display_path, what=what))
            else:
                by_name[plugin.name] = plugin
    return InstalledPlugins(tuple(by_name.values()), tuple(findings))


def read_plugin(root: Path, scope: Scope, *, display_path: str | None = None) -> Plugin:
    """Read a folder as a plugin; it does not need a manifest."""
    plugin = Plugin(
        name=plugin_name(root.name), root=root, scope=scope, display_path=display_path or root.name
    )
    return _PluginReader(plugin).read()


class _PluginReader(Struct):
    plugin: Plugin
    findings: list[Finding] = field(default_factory=list[Finding])

    def read(self) -> Plugin:
        portable = self.json(PORTABLE)
        if isinstance(portable, JsonFile) and agent_plugins_spec.is_portable(portable):
            return self.portable(portable)
        manifests = {path: self.json(path) for path in VENDOR_MANIFESTS}
        path = next((path for path, file in manifests.items() if file is not None), PORTABLE)
        if isinstance(portable, Finding):
            if path == PORTABLE:
                return self.rejected(portable)
            self.findings.append(portable)
        manifest = manifests.get(path, portable)
        if isinstance(manifest, Finding):  # the parts can be found without it
            self.findings.append(manifest)
            manifest = None
        return self.vendor(manifest, VENDOR_MANIFESTS.get(path, "claude"))

    def portable(self, manifest: JsonFile) -> Plugin:
        """Skills and servers have fixed places; other parts need a vendor's manifest as well."""
        self.findings += agent_plugins_spec.check_manifest(manifest)
        if any(finding.level == "error" for finding in self.findings):
            return self.rejected()
        self.describe(manifest, "agent-plugins")
        skills = tuple(filter(self.is_skill, self.children(self.plugin.root / "skills")))
        file = self.json("mcp.json")
        servers = self.portable_servers(file) if isinstance(file, JsonFile) else []
        if isinstance(file, Finding):
            self.findings.append(file)
        manifests = [self.json(path) for path in VENDOR_MANIFESTS]
        vendor = next((file for file in manifests if isinstance(file, JsonFile)), None)
        if vendor is not None:
            self.add_vendor_parts(vendor)
        return self.finished(skills, servers)

    def vendor(self, manifest: JsonFile | None, kind: PluginKind) -> Plugin:
        if manifest is not None:
            self.check_keys(manifest)
            self.describe(manifest, kind)
        file = manifest or JsonFile(self.plugin.display_path, "", {})
        skills = tuple(dict.fromkeys(self.skills(file)))
        servers = {server.name: server for server in self.servers(file)}
        self.add_vendor_parts(file)
        for path in (self.plugin.root / name for name in _UNSUPPORTED_ENTRIES):
            if path.exists():
                self.warn("note", path, "not supported in this version")
        return self.finished(skills, servers.values())

    def finished(self, skills: tuple[Path, ...], servers: Iterable[McpServer]) -> Plugin:
        findings = tuple(self.findings)
        return replace(self.plugin, skills=skills, servers=tuple(servers), findings=findings)

    def rejected(self, *findings: Finding) -> Plugin:
        return replace(self.plugin, is_rejected=True, findings=(*self.findings, *findings))

    def describe(self, manifest: JsonFile, kind: PluginKind) -> None:
        fields = manifest.fields
        own_name = fields.get("name")
        name = plugin_name(own_name) if isinstance(own_name, str) and own_name else self.plugin.name
        if name != own_name:
            what = f"name must be lowercase letters, digits, - and .: {name} is used"
            self.findings.append(manifest.finding("warning", what, "name"))
        texts = {key: value for key in _TEXTS if isinstance(value := fields.get(key), str)}
        self.plugin = replace(self.plugin, kind=kind, manifest=fields, name=name, **texts)

    def check_keys(self, manifest: JsonFile) -> None:
        for key, value in manifest.fields.items():
            if key in UNSUPPORTED_KEYS:
                what = f"{key} is not supported in this version"
                self.findings.append(manifest.finding("note", what, key))
            elif key not in _SUPPORTED_KEYS | _DISPLAY_KEYS:
                what = f"{key} is unknown and has no effect"
                self.findings.append(manifest.finding("warning", what, key))
            elif key in _TEXTS and not isinstance(value, str):
                self.findings.append(manifest.finding("warning", f"{key} must be text", key))

    def add_vendor_parts(self, manifest: JsonFile) -> None:
        self.plugin = replace(
            self.plugin,
            agents=tuple(self.files(manifest, "agents")),
            commands=tuple(self.files(manifest, "commands")),
            hooks=tuple(self.hooks(manifest)),
        )

    def skills(self, manifest: JsonFile) -> Iterator[Path]:
        """The skills in the default folder and those that the manifest adds; or the plugin itself
        is a skill."""
        if _uses_default_paths(manifest):
            yield from filter(self.is_skill, self.children(self.plugin.root / "skills"))
        for path in self.named(manifest, "skills"):
            is_one = (path / "SKILL.md").exists()
            yield from filter(self.is_skill, [path] if is_one else self.children(path))
        root = self.plugin.root
        is_bare = "skills" not in manifest.fields and not (root / "skills").exists()
        if is_bare and self.is_skill(root):
            yield root

    def is_skill(self, folder: Path) -> bool:
        file = folder / "SKILL.md"
        if not file.exists():
            return False
        is_sound = file.is_file() and is_inside(file, self.plugin.root)
        if not is_sound:
            self.warn("error", file, "not a file of the plugin: skipped")
        return is_sound

    def files(self, manifest: JsonFile, part: Literal["agents", "commands"]) -> Iterator[Path]:
        """The files that the manifest names, or else the default folder."""
        default = self.plugin.root / part
        if part in manifest.fields:
            yield from self.named(manifest, part)
        elif _uses_default_paths(manifest) and self.children(default):
            yield default

    def children(self, folder: Path) -> list[Path]:
        """The entries of a folder of the plugin, not recursive."""
        if not folder.exists() and not folder.is_symlink():
            return []
        if not folder.is_dir() or not is_inside(folder, self.plugin.root):
            self.warn("error", folder, "not a folder of the plugin: skipped")
            return []
        try:
            entries = _visible(folder)
        except OSError as error:
            self.warn("error", folder, f"{error.strerror or error}")
            return []
        if len(entries) > _MAX_ENTRIES:
            self.warn("error", folder, f"more than {_MAX_ENTRIES} entries; the rest is skipped")
        return entries[:_MAX_ENTRIES]

    def named(self, manifest: JsonFile, key: str) -> Iterator[Path]:
        """The paths that a key of the manifest names."""
        value = manifest.fields.get(key)
        for item in [value] if isinstance(value, str) else _command_files(value):
            path = self.inside(manifest, key, item)
            if path is not None:
                yield path

    def inside(self, manifest: JsonFile, key: str, value: object) -> Path | None:
        why = _path_fault(value, self.plugin.root)
        if why is not None or not isinstance(value, str):
            what = f"{key}: {str(value)[:100]!r} {why}: skipped"
            self.findings.append(manifest.finding("error", what, key))
            return None
        if not value.startswith("."):
            what = f"{key}: {value!r} should start with ./"
            self.findings.append(manifest.finding("warning", what, key))
        return self.plugin.root / PurePosixPath(value)

    def hooks(self, manifest: JsonFile) -> Iterator[PluginHooks]:
        for file, inline in self.declared(manifest, "hooks", "hooks/hooks.json"):
            value = file.fields.get("hooks") if inline is None else inline.get("hooks", inline)
            hooks = as_object(value)
            if hooks is None:
                what = "hooks must be an object of events"
                self.findings.append(file.finding("error", what, "hooks"))
            else:
                yield PluginHooks(file.display_path, hooks)

    def servers(self, manifest: JsonFile) -> Iterator[McpServer]:
        """If two servers have the same name, the later one is used."""
        for file, inline in self.declared(manifest, SERVERS, ".mcp.json", "mcp.json"):
            if inline is None:
                table, findings = table_of(file)
                self.findings += findings
            else:
                table = ServerTable(file, (SERVERS,), inline)
            servers, findings = read_table(table, self.start(file))
            self.findings += findings
            yield from servers

    def declared(
        self, manifest: JsonFile, key: str, *defaults: str
    ) -> Iterator[tuple[JsonFile, JsonObject | None]]:
        """The default files and those that a key names, then the objects in the manifest itself."""
        files = [*defaults] if _uses_default_paths(manifest) else []
        inline: list[JsonObject] = []
        for value in _as_items(manifest.fields.get(key)):
            if (fields := as_object(value)) is not None:
                inline.append(fields)
            elif (path := self.inside(manifest, key, value)) is not None:
                files.append(self.relative(path))
        for file in (self.json(name) for name in dict.fromkeys(files)):
            if isinstance(file, Finding):
                self.findings.append(file)
            elif file is not None:
                yield file, None
        yield from ((manifest, fields) for fields in inline)

    def portable_servers(self, file: JsonFile) -> list[McpServer]:
        start = msgspec.structs.replace(self.start(file), is_portable=True)
        servers, findings = agent_plugins_spec.read_servers(file, self.plugin.root, start)
        self.findings += findings
        return servers

    def start(self, file: JsonFile) -> McpServer:
        plugin = self.plugin
        return McpServer(
            name="",
            transport="stdio",
            scope=plugin.scope,
            file=file.display_path,
            plugin=plugin.name,
            plugin_root=str(plugin.root.resolve()),
            plugin_data=str(plugin.data.resolve()),
        )

    def json(self, name: str) -> JsonFile | Finding | None:
        root = self.plugin.root
        return read_object(root / name, f"{self.plugin.display_path}/{name}", within=root)

    def relative(self, path: Path) -> str:
        return path.relative_to(self.plugin.root).as_posix()

    def warn(self, level: Level, path: Path, what: str) -> None:
        file = f"{self.plugin.display_path}/{self.relative(path)}"
        self.findings.append(Finding(level=level, file=file, what=what))


def _uses_default_paths(manifest: JsonFile) -> bool:
    """False if the manifest (or the marketplace entry) says that only the paths it names are
    used."""
    return manifest.fields.get("strict") is not False


def _path_fault(value: object, root: Path) -> str | None:
    """Why a path of a manifest cannot be used."""
    if not isinstance(value, str) or not value:
        return "is not a path"
    is_plain = len(value) <= _MAX_PATH and not any(mark in value for mark in ("\\", ":", "\0"))
    if not is_plain or value.startswith(("/", "~")) or ".." in PurePosixPath(value).parts:
        return "is not a path inside the plugin"
    path = root / value
    if not is_inside(path, root):
        return "is not a path inside the plugin"
    return None if path.exists() else "does not exist"


def _as_items(value: object) -> list[object]:
    """A single value counts as a list of one."""
    values = as_list(value)
    return values if values is not None else [] if value is None else [value]


def _command_files(value: object) -> list[object]:
    """The files that a map of commands names."""
    entries = as_object(value)
    if entries is None:
        return _as_items(value)
    return [(as_object(entry) or {}).get("source") for entry in entries.values()]


def _folders(place: Path) -> list[Path]:
    """The plugins in a folder. Hidden ones are being installed or removed.

    Raises:
        InvalidInput: the folder cannot be read, or is replaced at this moment.
    """
    try:
        return [path for path in _visible(place) if path.is_dir()] if place.is_dir() else []
    except OSError as error:
        raise InvalidInput(f"{place}: the plugins cannot be read: {error.strerror}") from error


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
