"""Loads the policy of a session from settings files. `project_trust` decides which are trusted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from mainspring import error_table
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission
from mainspring.core.hook import HookSettings
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.files.openat import real_path
from mainspring.harness.permissions.path_rules import absolute_path
from mainspring.harness.permissions.policy import (
    Mode,
    Policy,
    PolicyRule,
    Scope,
    merge_policies,
    parse_mode,
)
from mainspring.harness.permissions.rule import parse_rule
from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.definition_files.json_file import as_list, as_object
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.definition_files.settings_file import (
    PermissionSettings,
    Preferences,
    RawSettings,
    SettingsFile,
    merge_preferences,
)
from mainspring.runtime.settings.project_trust import (
    HOOKS_FILE,
    LOCAL_FILE,
    USER_FILES,
    ProjectFiles,
    ReadScripts,
    SubagentParts,
    is_trusted,
    parts_of_subagent,
    read_project_files,
    subagents_with_commands,
    trust,
)

MANAGED_SETTINGS = Path("/etc/mainspring/settings.json")
AGENT_FILES = (HOOKS_FILE, manifest.FILE)
"""Files of an agent's folder that apply wherever the agent works."""
STRICTEST_MODE: Mode = "plan"
"""The mode that permits the least."""


class SubagentFile(Struct, frozen=True):
    name: str
    scope: Literal["user", "project"]
    file: str
    parts: SubagentParts


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPolicy:
    policy: Policy
    hooks: tuple[HookSettings, ...]
    sandbox: Mapping[str, object]
    """Settings of the sandbox; narrower scopes override wider ones."""
    warnings: tuple[str, ...]
    is_trusted: bool
    """Whether the project's own settings apply in full."""
    scripts: Mapping[str, str]
    """The trusted hashes of files that hooks may run, by absolute path."""
    preferences: Preferences = field(default_factory=Preferences)
    servers: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """The project's files that name MCP servers, as they were trusted."""
    subagents: tuple[SubagentFile, ...] = ()
    """The subagents with their own hooks or MCP servers, as they were trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadedFile:
    scope: Scope
    file: Path
    folder: Path
    """The folder that `/x` in its rules is relative to."""
    settings: SettingsFile
    warnings: tuple[str, ...] = ()


class _AgentSettings(Struct, frozen=True):
    files: list[_LoadedFile]
    scripts: dict[str, str]
    subagents: tuple[SubagentFile, ...] = ()


def load_policy(
    folder: Path,
    *,
    home: Path,
    read_scripts: ReadScripts,
    managed: Path | None = None,
    only_managed: bool = False,
    agent: Path | None = None,
) -> LoadedPolicy:
    """Load the policy for work in a folder.

    Args:
        only_managed: read only the operator's settings.
        agent: the agent's own folder, if it is another one: its settings also apply.

    Raises:
        InvalidInput: a file, or a rule that forbids something, is not valid. Continuing
            without it would permit what it was meant to forbid.
    """
    place = Path(os.path.realpath(folder))
    project, files = ProjectFiles(settings={}, scripts={}), list[_LoadedFile]()
    if not only_managed:
        project = read_project_files(place, home=home, read_scripts=read_scripts)
        files = list(_read_all(place, project.settings, home=home))
    trusted = is_trusted(place, project, home=home)
    scripts = project.script_hashes(place) if trusted else {}
    managed = managed or MANAGED_SETTINGS
    managed_files = [*_read_existing("managed", managed, place)]
    warnings = [warning for file in (*files, *managed_files) for warning in file.warnings]
    subagents: list[SubagentFile] = []
    if not only_managed:
        users = subagents_with_commands(Scopes(folder=place, home=home), "user")
        subagents += _subagent_files(users, "user")
    if trusted:
        subagents += _subagent_files(project.subagents_in(place), "project")
    else:
        files, untrusted = _restrict_untrusted(files)
        warnings += untrusted
        warnings += project.ignored_parts(place)
    if agent is not None and not only_managed and os.path.realpath(agent) != str(place):
        agent_settings, agent_warnings = _read_agent_settings(
            agent, place, home=home, read_scripts=read_scripts
        )
        files += agent_settings.files
        scripts |= agent_settings.scripts
        subagents += agent_settings.subagents
        warnings += agent_warnings
    if any(file.settings.allow_managed_permission_rules_only for file in managed_files):
        files = [replace(file, settings=_without_allow(file.settings)) for file in files]
    files += managed_files
    start = Policy(workspace=place.as_posix(), home=home.as_posix())
    policy = reduce(merge_policies, (_policy(file, start, warnings) for file in files), start)
    sandbox = {key: value for file in files for key, value in file.settings.sandbox.items()}
    if folders := tuple(chain.from_iterable(_allowed_reads(file, start) for file in files)):
        sandbox["readOnly"] = [*(as_list(sandbox.get("readOnly")) or ()), *folders]
    return LoadedPolicy(
        policy=msgspec.structs.replace(policy, sandbox_allows_bash=_allows_bash(sandbox)),
        hooks=(*_hooks(files), *_subagent_hooks(subagents)),
        sandbox=sandbox,
        warnings=tuple(warnings),
        is_trusted=trusted,
        scripts=scripts,
        preferences=merge_preferences((file.scope, file.settings) for file in files),
        servers=project.servers if trusted else {},
        subagents=tuple(subagents),
    )


def _allowed_reads(file: _LoadedFile, place: Policy) -> Iterator[str]:
    """The folders of Claude Code's `sandbox.filesystem.allowRead` that programs do not see anyway.
    Home folders, and what does not exist, are left out."""
    filesystem = as_object(file.settings.sandbox.get("filesystem")) or {}
    for path in as_list(filesystem.get("allowRead")) or ():
        if not isinstance(path, str):
            continue
        folder = absolute_path(path, cwd=file.folder.as_posix(), home=place.home)
        is_wide = any(Path(item).is_relative_to(folder) for item in (place.home, place.workspace))
        if not (is_wide or Path(folder).is_relative_to(place.workspace)) and Path(folder).exists():
            yield _real_folder(folder, place.workspace)


def _subagent_hooks(subagents: Iterable[SubagentFile]) -> Iterator[HookSettings]:
    for item in subagents:
        if item.parts.hooks:
            yield HookSettings(
                scope=item.scope, source=item.file, hooks=item.parts.hooks, subagent=item.name
            )


def _subagent_files(
    files: Mapping[Path, bytes], scope: Literal["user", "project"]
) -> Iterator[SubagentFile]:
    for file, content in files.items():
        parts = parts_of_subagent(content)
        yield SubagentFile(parts.name or file.stem, scope, str(file), parts)


def read_policy(file: Path, *, folder: Path, home: Path) -> tuple[Policy, tuple[str, ...]]:
    """The policy of a single settings file, and warnings about it.

    Raises: InvalidInput.
    """
    place = Path(os.path.realpath(folder))
    start, warnings = Policy(workspace=place.as_posix(), home=home.as_posix()), list[str]()
    for loaded in _read_existing("project", file, place):
        warnings += loaded.warnings
        start = merge_policies(start, _policy(loaded, start, warnings))
    return start, tuple(warnings)


def add_local_rules(
    folder: Path, texts: Iterable[str], *, home: Path, read_scripts: ReadScripts
) -> Path:
    """Add "always allow" rules to the folder's local settings, in one atomic write.

    A trusted folder stays trusted.

    Raises:
        InvalidInput: a rule or the file is not valid; nothing was written.
    """
    file = folder / LOCAL_FILE
    project = read_project_files(folder, home=home, read_scripts=read_scripts)
    settings = _decode(file, project.settings.get(LOCAL_FILE, b""))
    permissions = settings.setdefault("permissions", {})
    if not isinstance(permissions, dict):
        raise InvalidInput(f"{file}: permissions must be an object")
    allow = permissions.setdefault("allow", [])  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] (checked in the next line)
    if not isinstance(allow, list):
        raise InvalidInput(f"{file}: permissions.allow must be a list")
    for text in texts:
        parse_rule(text, behavior="allow")
        if text not in allow:
            allow.append(text)  # pyright: ignore[reportUnknownMemberType]
    was_trusted = is_trusted(folder, project, home=home)
    encoded = msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"
    write_atomic(file, encoded)
    if was_trusted:
        # trust the bytes read and written here: a program may have changed the files since
        changed = replace(project, settings={**project.settings, LOCAL_FILE: encoded})
        trust(folder, changed, home=home)
    return file


def _read_all(folder: Path, own: Mapping[str, bytes], *, home: Path) -> Iterator[_LoadedFile]:
    """Read the settings files of the user and the project, those with the lowest precedence
    first."""
    users = [home / name for name in USER_FILES]
    for file in users:
        yield from _read_existing("user", file, file.parent)
    for name, content in own.items():
        file = folder / name
        if file not in users:  # the home folder is not a project
            scope: Scope = "local" if name.endswith(".local.json") else "project"
            yield _read_file(scope, file, folder, content)


def _read_existing(scope: Scope, file: Path, folder: Path) -> Iterator[_LoadedFile]:
    if (content := read_bounded(file)) is not None:
        yield _read_file(scope, file, folder, content)


def _read_agent_settings(
    agent: Path, place: Path, *, home: Path, read_scripts: ReadScripts
) -> tuple[_AgentSettings, list[str]]:
    """An agent's own settings, which apply wherever it works if its own folder is trusted."""
    agent = Path(os.path.realpath(agent))
    project = read_project_files(agent, home=home, read_scripts=read_scripts)
    files = [
        _read_file("project", agent / name, place, project.settings[name])
        for name in AGENT_FILES
        if name in project.settings
    ]
    warnings = [warning for file in files for warning in file.warnings]
    if is_trusted(agent, project, home=home):
        subagents = tuple(_subagent_files(project.subagents_in(agent), "project"))
        return _AgentSettings(files, project.script_hashes(agent), subagents), warnings
    files, untrusted = _restrict_untrusted(files)
    return _AgentSettings(files, {}), [*warnings, *untrusted]


def _read_file(scope: Scope, file: Path, folder: Path, content: bytes) -> _LoadedFile:
    fields = _decode(file, content)
    try:
        settings = msgspec.convert(fields, SettingsFile)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{file}: {error}") from error
    service_keys = manifest.SERVICE_KEYS if file.name == manifest.FILE else ()
    unknown = [key for key in _unknown_keys(fields, SettingsFile) if key not in service_keys]
    permissions = msgspec.convert(fields.get("permissions", {}), RawSettings)
    unknown += [f"permissions.{key}" for key in _unknown_keys(permissions, PermissionSettings)]
    text = f"{file}: {', '.join(unknown)}: ignored; `mainspring validate` says why"
    warnings = (text,) if unknown else ()
    return _LoadedFile(scope=scope, file=file, folder=folder, settings=settings, warnings=warnings)


def _decode(file: Path, content: bytes) -> RawSettings:
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf") or b"{}", type=RawSettings)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{file}: not a JSON object: {error}") from error


def _unknown_keys(fields: Mapping[str, object], kind: type[Struct]) -> list[str]:
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    return [key for key in fields if key not in names and key != "$schema"]


def _restrict_untrusted(files: list[_LoadedFile]) -> tuple[list[_LoadedFile], list[str]]:
    """The restrictions among the settings of an untrusted folder; nothing else of it applies."""
    results: list[_LoadedFile] = []
    warnings: list[str] = []
    for file in files:
        if file.scope not in ("project", "local"):
            results.append(file)
            continue
        permissions = file.settings.permissions
        mode = permissions.default_mode if permissions.default_mode == STRICTEST_MODE else None
        restrictions = SettingsFile(
            permissions=PermissionSettings(
                ask=permissions.ask, deny=permissions.deny, default_mode=mode
            )
        )
        results.append(replace(file, settings=restrictions))
        if restrictions != file.settings:
            warnings.append(error_table.UNTRUSTED_FOLDER.message.format(file=file.file))
    return results, warnings


def _without_allow(settings: SettingsFile) -> SettingsFile:
    permissions = msgspec.structs.replace(settings.permissions, allow=())
    return msgspec.structs.replace(settings, permissions=permissions)


def _policy(file: _LoadedFile, place: Policy, warnings: list[str]) -> Policy:
    permissions = file.settings.permissions
    folders = (
        absolute_path(additional_directory, cwd=file.folder.as_posix(), home=place.home)
        for additional_directory in permissions.additional_directories
    )
    return Policy(
        workspace=place.workspace,
        home=place.home,
        rules=tuple(_rules(file, warnings)),
        mode=_mode(file, permissions.default_mode),
        directories=tuple(_real_folder(folder, place.workspace) for folder in folders),
        bypass="never" if permissions.disable_bypass_permissions_mode == "disable" else None,
        hooks_fail_open=file.settings.hooks_fail_open,
    )


def _real_folder(folder: str, workspace: str) -> str:
    """Resolve links, except those in the workspace, which programs may have made."""
    try:
        return real_path(folder, distrusted=[workspace])
    except OSError:
        return folder


def _rules(file: _LoadedFile, warnings: list[str]) -> Iterator[PolicyRule]:
    permissions = file.settings.permissions
    behaviors: tuple[tuple[Permission, tuple[str, ...]], ...] = (
        ("deny", permissions.deny),
        ("ask", permissions.ask),
        ("allow", permissions.allow),
    )
    for behavior, texts in behaviors:
        for text in texts:
            try:
                parse_rule(text, behavior=behavior)
            except InvalidInput as error:
                if behavior != "allow":
                    raise InvalidInput(f"{file.file}: permissions.{behavior}: {error}") from error
                warnings.append(f"{file.file}: permissions.allow: {error}; it allows nothing")
                continue
            yield PolicyRule(
                text=text,
                behavior=behavior,
                scope=file.scope,
                folder=file.folder.as_posix(),
                source=str(file.file),
            )


def _mode(file: _LoadedFile, text: str | None) -> Mode | None:
    if text is None:
        return None
    try:
        return parse_mode(text)
    except InvalidInput as error:
        raise InvalidInput(f"{file.file}: permissions.defaultMode: {error}") from error


def _hooks(files: list[_LoadedFile]) -> Iterator[HookSettings]:
    is_off = any(file.settings.disable_all_hooks for file in files)
    for file in files:
        is_silenced = is_off and file.scope != "managed"
        if file.settings.hooks and not is_silenced:
            yield HookSettings(scope=file.scope, source=str(file.file), hooks=file.settings.hooks)


def _allows_bash(sandbox: Mapping[str, object]) -> bool | None:
    is_allowed = sandbox.get("autoAllowBashIfSandboxed")
    if isinstance(is_allowed, bool):
        return is_allowed
    return True if sandbox.get("enabled") is True else None
