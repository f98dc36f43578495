"""Validates an agent's folder as a whole: every part, its settings and hooks included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission
from mainspring.harness.permissions.policy import parse_mode
from mainspring.harness.permissions.rule import parse_rule
from mainspring.harness.permissions.tool_names import (
    BUILTIN_TOOL_NAMES,
    TOOL_NAMES,
    is_tool_name,
)
from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.agent_folder.agent_loader import AgentFolder, read_agent
from mainspring.runtime.agent_folder.mcp_file import read_mcp
from mainspring.runtime.agent_folder.plugins import installed_plugins
from mainspring.runtime.agent_folder.validation import (
    PLANNED,
    SERVERS_PART,
    SUBAGENTS_PART,
    FolderReport,
    IgnoredItem,
    PartReport,
    check_folder,
    server_label,
)
from mainspring.runtime.definition_files.finding import Finding, Level
from mainspring.runtime.definition_files.json_file import JsonFile, as_list, as_object, read_object
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.settings import kiro_hooks
from mainspring.runtime.settings.policy_loader import (
    STRICTEST_MODE,
    PermissionSettings,
    SettingsFile,
)
from mainspring.runtime.settings.project_trust import (
    HOOKS_FILE,
    PROJECT_FILES,
    ProjectFiles,
    ReadScripts,
    is_trusted,
    read_project_files,
    unscheduled_reason,
)
from mainspring.runtime.skills.skill_discovery import IsPinned
from mainspring.runtime.subagent import Subagent

MissingModel: TypeAlias = Callable[[str], str | None]
"""Returns why a model cannot be found; `None` if it can."""


def check_manifest_names(
    missing_model: MissingModel, agent_manifest: manifest.AgentManifest
) -> Iterator[Finding]:
    finding = partial(Finding, file=manifest.FILE)
    for name in agent_manifest.tools:
        if not is_tool_name(name):
            fix = _suggestion(name) or f"there are {', '.join(sorted(BUILTIN_TOOL_NAMES))}"
            line = agent_manifest.lines.get("tools")
            yield finding(level="warning", line=line, what=f"there is no tool {name}", fix=fix)
    if (reason := missing_model(agent_manifest.model)) is not None:
        problem, _, fix = reason.partition("; ")
        yield finding(level="error", line=agent_manifest.lines.get("model"), what=problem, fix=fix)


def _with_names(
    part: PartReport, missing_model: MissingModel, agent_manifest: manifest.AgentManifest
) -> PartReport:
    """The part of the agent with findings about names that do not exist; these have no effect."""
    findings = tuple(check_manifest_names(missing_model, agent_manifest))
    ignored: tuple[IgnoredItem, ...] = ()
    if any(finding.level == "error" for finding in findings):
        ignored = (IgnoredItem(f"model {agent_manifest.model}", "no session can start with it"),)
    labels = {item.what for item in ignored}
    return replace(
        part,
        supported=tuple(item for item in part.supported if item not in labels),
        ignored=(*part.ignored, *ignored),
        findings=(*part.findings, *findings),
    )


def check_subagent_names(missing_model: MissingModel, subagent: Subagent) -> Iterator[IgnoredItem]:
    """Unknown tools and models. They are not errors: files of Claude Code name tools and models
    that only Claude Code has."""
    for name in subagent.tools or ():
        if not is_tool_name(name):
            reason = f"there is none here; {_suggestion(name)}".removesuffix("; ")
            yield IgnoredItem(f"{subagent.name}: tool {name}", reason)
    if (reason := missing_model(subagent.model or "")) is not None:
        label = f"{subagent.name}: model {subagent.model}"
        yield IgnoredItem(label, f"its parent's model is used: {reason}")


def _suggestion(name: str) -> str:
    similar = get_close_matches(name.partition("(")[0], sorted(TOOL_NAMES), n=1)
    return f"did you mean {similar[0]}?" if similar else ""


_NO_AGENT = Finding(
    level="warning",
    file=".",
    what="there is no agent in this folder",
    fix="`mainspring init` writes one",
)
_UNTRUSTED_MESSAGE = "this folder is not trusted; `mainspring policy trust` applies it"
_BEHAVIORS: tuple[Permission, ...] = ("allow", "ask", "deny")
_RESTRICTING = ("ask", "deny")
_KNOWN_KEYS = {item.encode_name for item in msgspec.structs.fields(SettingsFile)} | {"$schema"}
_KNOWN_PERMISSIONS = {item.encode_name for item in msgspec.structs.fields(PermissionSettings)}
_REASONS = {
    "model": "agent.yaml has `model`",
    "effortLevel": "agent.yaml has `effort`",
    "extraKnownMarketplaces": "plugins are installed with `mainspring plugin install`",
    "enableAllProjectMcpServers": "trusting a folder approves its MCP servers as they are",
    "enabledMcpjsonServers": "trusting a folder approves its MCP servers as they are",
    "includeCoAuthoredBy": "the agent writes its commit messages itself",
    "cleanupPeriodDays": "sessions are kept until they are deleted",
}
_MANAGED_ONLY = {"allowManagedHooksOnly", "strictPluginOnlyCustomization"}
_SETTINGS_POSITION = 5  # of settings among the parts of a report
_UNKNOWN_KEY_MESSAGE = "it is unknown and has no effect"

DescribeHooks: TypeAlias = Callable[
    [Mapping[str, object], str], tuple[Sequence[str], Sequence[str]]
]
"""The hooks of a file, by its fields and name, and warnings about them. Raises: InvalidInput."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderChecks:
    """The checks that depend on the machine on which the agent would run."""

    describe_hooks: DescribeHooks
    check_environment: Callable[[Mapping[str, object]], object]
    """Raises: InvalidInput: these settings of a sandbox are not valid."""
    missing_model: MissingModel
    restrict_models: Callable[[AgentFolder], AgentFolder]
    """Removes the models that an untrusted folder may not choose, and says so."""
    read_scripts: ReadScripts
    is_pinned: IsPinned
    home: Path
    variables: Mapping[str, str]
    """The environment of the process: `.mcp.json` may refer to it."""
    disabled_plugins: frozenset[str]


def validate_folder(scopes: Scopes, checks: FolderChecks) -> FolderReport:
    """Check all parts of an agent's folder. Only reads files: runs no program and connects to no
    server.

    Raises:
        InvalidInput: there is no such folder.
    """
    is_pinned = checks.is_pinned
    agent_folder = checks.restrict_models(
        read_agent(scopes, is_pinned=is_pinned, allows_errors=True)
    )
    plugins = installed_plugins(scopes.folder, scopes.home, disabled=checks.disabled_plugins)
    servers = read_mcp(scopes, checks.variables, plugins=plugins.servers)
    parts = check_folder(
        scopes.folder, agent_folder, plugins=plugins, servers=servers, is_pinned=is_pinned
    )
    names = frozenset(plugin.name for plugin in plugins.plugins)
    project = _read_project(scopes, checks)
    settings_report = _SettingsReport(
        checks=checks, scopes=scopes, is_trusted=_is_trusted(project, scopes, checks), plugins=names
    )
    settings_report.read(agent_folder.agent_manifest)
    settings_report.read_kiro_hooks()
    parts[0] = _with_names(parts[0], checks.missing_model, agent_folder.agent_manifest)
    files = [subagent for subagent in agent_folder.agent.subagents if subagent.file]
    ignored = [item for file in files for item in check_subagent_names(checks.missing_model, file)]
    with_hooks = [file for file in files if file.hooks and file.scope == "project"]
    if not settings_report.is_trusted:
        ignored += [IgnoredItem(f"{file.name}: hooks", _UNTRUSTED_MESSAGE) for file in with_hooks]
        labels = [server_label(server) for server in servers.servers if server.scope == "project"]
        parts = [_distrust(part, labels) if part.name == SERVERS_PART else part for part in parts]
    subagents = parts[_SETTINGS_POSITION - 1]
    parts[_SETTINGS_POSITION - 1] = replace(subagents, ignored=(*subagents.ignored, *ignored))
    parts[_SETTINGS_POSITION:_SETTINGS_POSITION] = settings_report.parts
    if agent_folder.agent_manifest.schedule is not None and project is not None:
        parts = [_check_schedule(part, project) if part.name == PLANNED else part for part in parts]
    own = [part for part in parts if part.name != SUBAGENTS_PART and not part.is_empty]
    if not own and not files:
        parts[0] = replace(parts[0], findings=(_NO_AGENT,))
    return FolderReport(parts=tuple(part for part in parts if not part.is_empty))


def _read_project(scopes: Scopes, checks: FolderChecks) -> ProjectFiles | None:
    """`None` if a file cannot be read; another part of the report gives the reason."""
    try:
        return read_project_files(scopes.folder, home=checks.home, read_scripts=checks.read_scripts)
    except InvalidInput:
        return None


def _is_trusted(project: ProjectFiles | None, scopes: Scopes, checks: FolderChecks) -> bool:
    try:
        return project is not None and is_trusted(scopes.folder, project, home=checks.home)
    except InvalidInput:  # a file that cannot be read was never trusted
        return False


def _distrust(part: PartReport, items: Collection[str]) -> PartReport:
    ignored = [IgnoredItem(item, _UNTRUSTED_MESSAGE) for item in part.supported if item in items]
    return replace(
        part,
        supported=tuple(item for item in part.supported if item not in items),
        ignored=(*part.ignored, *ignored),
    )


def _check_schedule(part: PartReport, project: ProjectFiles) -> PartReport:
    try:
        reason = unscheduled_reason(project)
    except InvalidInput as error:
        reason = str(error)
    if reason is None:
        return part
    supported = (item for item in part.supported if not item.startswith("schedule "))
    return replace(
        part,
        supported=tuple(supported),
        ignored=(IgnoredItem("schedule", reason), *part.ignored),
    )


@dataclass(slots=True)
class _SettingsReport:
    """Collects the settings of a folder, file by file."""

    checks: FolderChecks
    scopes: Scopes
    is_trusted: bool
    plugins: frozenset[str]
    """Names of the installed plugins."""
    supported: list[str] = field(default_factory=list[str])
    ignored: list[IgnoredItem] = field(default_factory=list[IgnoredItem])
    findings: list[Finding] = field(default_factory=list[Finding])
    hooks: list[str] = field(default_factory=list[str])
    hooks_ignored: list[IgnoredItem] = field(default_factory=list[IgnoredItem])
    hook_findings: list[Finding] = field(default_factory=list[Finding])
    environment_line: int | None = None

    @property
    def parts(self) -> list[PartReport]:
        permissions = (tuple(self.supported), tuple(self.ignored), tuple(self.findings))
        hooks = (tuple(self.hooks), tuple(self.hooks_ignored), tuple(self.hook_findings))
        return [
            PartReport(name=name, supported=supported, ignored=ignored, findings=findings)
            for name, (supported, ignored, findings) in (
                ("permissions and sandbox", permissions),
                ("hooks", hooks),
            )
        ]

    def read(self, agent: manifest.AgentManifest) -> None:
        for name in PROJECT_FILES:
            if name == manifest.FILE:
                self._of_manifest(agent)
                continue
            file = read_object(self.scopes.folder / name, name)
            if isinstance(file, Finding):
                self.findings.append(file)
            elif file is not None:
                self._of_hooks(file)
                if name != HOOKS_FILE:
                    self._of_settings(file)

    def read_kiro_hooks(self) -> None:
        for file in kiro_hooks.read_files(self.scopes.folder):
            if isinstance(file, Finding):
                self.hook_findings.append(file)
            elif file.fields:
                self._of_hooks(file)
            else:
                self.hooks_ignored.append(IgnoredItem(file.display_path, kiro_hooks.OTHER_VERSION))

    def _of_manifest(self, agent_manifest: manifest.AgentManifest) -> None:
        """Its rules were checked when the file was read."""
        if agent_manifest.permissions is not None:
            for key in _BEHAVIORS:
                self._add_rules(manifest.FILE, key, getattr(agent_manifest.permissions, key))
            if (mode := agent_manifest.permissions.mode) is not None:
                self._add_setting(manifest.FILE, f"mode {mode}", is_cautious=mode == STRICTEST_MODE)
        if agent_manifest.environment is not None:
            self._add_setting(manifest.FILE, "environment")
            self.environment_line = agent_manifest.lines.get("environment")
            self._check_environment(agent_manifest.environment)

    def _of_settings(self, file: JsonFile) -> None:
        permissions = as_object(file.fields.get("permissions")) or {}
        self._unknown(file, permissions)
        for key in _BEHAVIORS:
            self._add_rules(file.display_path, key, [*self._rules(file, key, permissions.get(key))])
        mode = permissions.get("defaultMode")
        if mode is not None:
            self._mode(file, mode)
        if directories := as_list(permissions.get("additionalDirectories")):
            folders = ", ".join(map(str, directories))
            self._add_setting(file.display_path, f"also works in {folders}")
        for what in _preferences(file):
            self._add_setting(file.display_path, what)
        self._add_plugins(file)
        for key in _MANAGED_ONLY & file.fields.keys():
            reason = "only managed settings may set it"
            self.ignored.append(IgnoredItem(f"{file.display_path}: {key}", reason))
        sandbox = as_object(file.fields.get("sandbox"))
        if sandbox is not None:
            self._add_setting(file.display_path, "sandbox")
            self._check_environment(sandbox, file)

    def _add_plugins(self, file: JsonFile) -> None:
        for key, is_used in (as_object(file.fields.get("enabledPlugins")) or {}).items():
            name = key.partition("@")[0]
            if is_used and name not in self.plugins:
                reason = "it is not installed; `mainspring plugin install SOURCE` does that"
                self.ignored.append(IgnoredItem(f"{file.display_path}: plugin {name}", reason))
            else:
                state = "enabled" if is_used else "disabled"
                self._add_setting(file.display_path, f"plugin {name} {state}")

    def _unknown(self, file: JsonFile, permissions: dict[str, object]) -> None:
        unknown = {key: key for key in file.fields if key not in _KNOWN_KEYS}
        unknown |= {
            key: f"permissions.{key}" for key in permissions if key not in _KNOWN_PERMISSIONS
        }
        for key, label in unknown.items():
            reason = _REASONS.get(key, _UNKNOWN_KEY_MESSAGE)
            self.ignored.append(IgnoredItem(f"{file.display_path}: {label}", reason))

    def _rules(self, file: JsonFile, key: Permission, value: object) -> Iterator[str]:
        rules = as_list(value)
        if value is not None and rules is None:
            self._find("error", file, f"permissions.{key} must be a list", key)
        for rule in rules or ():
            text = rule if isinstance(rule, str) else ""
            try:
                parse_rule(text, behavior=key)
                yield text
            except InvalidInput as error:
                is_fatal = key in _RESTRICTING  # ignoring it would permit something
                what = f"permissions.{key}: {error}{'' if is_fatal else '; it allows nothing'}"
                path, line = file.display_path, _line_of(file.text, text)
                level: Level = "error" if is_fatal else "warning"
                self.findings.append(Finding(level=level, file=path, line=line, what=what))

    def _mode(self, file: JsonFile, mode: object) -> None:
        try:
            is_strict = parse_mode(str(mode)) == STRICTEST_MODE
            self._add_setting(file.display_path, f"mode {mode}", is_cautious=is_strict)
        except InvalidInput as error:
            self._find("error", file, f"permissions.defaultMode: {error}", "defaultMode")

    def _add_rules(self, display_path: str, behavior: Permission, rules: Sequence[str]) -> None:
        if rules:
            what = f"{behavior} {', '.join(rules)}"
            self._add_setting(display_path, what, is_cautious=behavior in _RESTRICTING)

    def _add_setting(self, display_path: str, what: str, *, is_cautious: bool = False) -> None:
        if self.is_trusted or is_cautious:
            self.supported.append(f"{display_path}: {what}")
        else:
            self.ignored.append(IgnoredItem(f"{display_path}: {what}", _UNTRUSTED_MESSAGE))

    def _check_environment(self, fields: dict[str, object], file: JsonFile | None = None) -> None:
        """`file`: the settings file, if the settings are not those of `agent.yaml`."""
        try:
            self.checks.check_environment(fields)
        except InvalidInput as error:
            what, line = str(error), self.environment_line
            finding = Finding(level="error", file=manifest.FILE, line=line, what=what)
            self.findings.append(file.finding("error", what, "sandbox") if file else finding)

    def _of_hooks(self, file: JsonFile) -> None:
        if "hooks" not in file.fields:
            if file.display_path == HOOKS_FILE:
                self.hooks_ignored.append(IgnoredItem(file.display_path, "it has no `hooks`"))
            return
        try:
            hooks, warnings = self.checks.describe_hooks(file.fields, file.display_path)
        except InvalidInput as error:
            what = str(error).removeprefix(f"{file.display_path}: ")
            self.hook_findings.append(file.finding("error", what, "hooks"))
            return
        for warning in warnings:
            what = warning.removeprefix(f"{file.display_path}: ")
            event = what.removeprefix("hooks.").partition(":")[0].partition("[")[0]
            self.hook_findings.append(file.finding("warning", what, "hooks", event))
        for hook in hooks:
            what = f"{file.display_path}: {hook}"
            if self.is_trusted:
                self.hooks.append(what)
            else:
                self.hooks_ignored.append(IgnoredItem(what, _UNTRUSTED_MESSAGE))

    def _find(self, level: Level, file: JsonFile, what: str, *keys: str) -> None:
        self.findings.append(file.finding(level, what, *keys))


def _preferences(file: JsonFile) -> Iterator[str]:
    """Settings besides rules and hooks, without values of variables: they may be secrets."""
    if names := as_object(file.fields.get("env")):
        yield f"env {', '.join(names)}"
    if file.fields.get("apiKeyHelper"):
        yield "apiKeyHelper"
    if file.fields.get("statusLine"):
        yield "statusLine, in `mainspring chat`"
    if style := file.fields.get("outputStyle"):
        yield f"outputStyle {style}"


def _line_of(text: str, value: str) -> int | None:
    at = text.find(msgspec.json.encode(value).decode())
    return None if at < 0 else text.count("\n", 0, at) + 1
