"""Which folders are trusted: the hashes of the settings and hook scripts that somebody approved.
Also why a folder with restrictions is not scheduled.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.agent_folder.mcp_edits import WritableScope, servers_file
from mainspring.runtime.agent_folder.mcp_file import PROJECT_FILES as SERVER_FILES
from mainspring.runtime.agent_folder.subagent_files import read_servers
from mainspring.runtime.definition_files.frontmatter_fields import Fields, read_frontmatter
from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.definition_files.scopes import PartWalk, Scopes, select_markdown
from mainspring.runtime.definition_files.settings_file import SettingsFile
from mainspring.runtime.settings import kiro_hooks

ReadScripts: TypeAlias = Callable[[Iterable[str], Path], Mapping[str, bytes]]
"""Reads the files of a folder that commands run, by their paths in it. Raises: InvalidInput."""

_COMMAND_KEYS = re.compile(rb"^(hooks|mcpServers)\s*:", re.MULTILINE)
LOCAL_FILE = ".mainspring/settings.local.json"
HOOKS_FILE = "hooks.json"
PROJECT_FILES = (
    ".claude/settings.json",
    ".mainspring/settings.json",
    HOOKS_FILE,
    manifest.FILE,
    ".claude/settings.local.json",
    LOCAL_FILE,
)
USER_FILES = (".claude/settings.json", ".mainspring/settings.json")
MODELS_FILE = ".mainspring/models.toml"
TRUSTED_FILE = ".mainspring/trusted.json"
_MODEL_MARK = "#model"
_ORIGINAL_KEYS = frozenset(
    (
        *("permissions", "hooks", "sandbox", "disableAllHooks"),
        *("allowManagedPermissionRulesOnly", "hooksFailOpen"),
    )
)
"""Settings that the first version with trust applied. Never add to these: see `_ADDED_KEYS`."""
_ADDED_KEYS = {field.encode_name for field in msgspec.structs.fields(SettingsFile)} - _ORIGINAL_KEYS
"""Settings that were added since; keys of later versions are included automatically."""


class _HooksFile(Struct, frozen=True):
    hooks: dict[str, list[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFiles:
    """The files of a project that need trust; they are read once, so that the checked content is
    the content that is used."""

    settings: Mapping[str, bytes]
    """By file."""
    scripts: Mapping[str, bytes]
    """Files of the folder that hooks run, by relative path."""
    subagents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files of subagents with hooks or MCP servers of their own."""
    servers: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files that name MCP servers."""

    @property
    def fingerprint(self) -> str:
        """A hash of the bytes and of which settings in them are applied: trust does not cover a
        setting that was ignored when the user trusted the folder."""
        scripts = {f"runs {name}": content for name, content in self.scripts.items()}
        keys = {
            f"honours {name}": ",".join(added).encode()
            for name, content in self.settings.items()
            if (added := sorted(_decode_object(content).keys() & _ADDED_KEYS))
        }
        return _fingerprint({**self.settings, **self.subagents, **self.servers, **scripts, **keys})

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """Commands that run outside the sandbox, and where they come from."""
        for file, content in self.settings.items():
            fields = _decode_object(content)
            for key in ("hooks", "statusLine", "apiKeyHelper"):
                value = fields.get(key)
                entry = as_object(value) or {"command": value}
                yield from ((item, f"{key}, {file}") for item in _commands_in([entry]))
        for file, content in self.subagents.items():
            hooks = parts_of_subagent(content).hooks
            yield from ((item, f"hooks, {file}") for item in _commands_in([hooks]))
        for file, content in self.servers.items():
            yield from ((item, f"headersHelper, {file}") for item in _header_helpers(content))

    @property
    def server_commands(self) -> Iterator[tuple[str, str]]:
        """Commands and addresses of MCP servers, and where they come from. Commands run in the
        sandbox."""
        tables = [
            *((file, _servers_in(content)) for file, content in self.servers.items()),
            *((file, parts_of_subagent(text).servers) for file, text in self.subagents.items()),
        ]
        for file, servers in tables:
            yield from ((item, file) for item in _commands_in([servers]))
            for entry in servers.values():
                if isinstance(url := (as_object(entry) or {}).get("url"), str):
                    yield url, file

    @property
    def variables(self) -> Iterator[tuple[str, str]]:
        """Names of the variables that the project sets, and where; without values, which may be
        secrets."""
        for file, content in self.settings.items():
            if env := as_object(_decode_object(content).get("env")):
                yield ", ".join(env), f"env, {file}"

    def ignored_parts(self, folder: Path) -> Iterator[str]:
        """The parts of an untrusted folder besides its settings, and why they have no effect."""
        for name in self.subagents:
            yield (
                f"{folder / name}: this folder is not trusted, so the hooks and MCP servers of this"
                " subagent do not run; `mainspring policy trust` lets them run"
            )
        for name in self.servers:
            yield (
                f"{folder / name}: this folder is not trusted, so its MCP servers are not started;"
                " `mainspring policy trust` lets them start"
            )

    def subagents_in(self, folder: Path) -> dict[Path, bytes]:
        return {folder / name: content for name, content in self.subagents.items()}

    def script_hashes(self, folder: Path) -> dict[str, str]:
        return {
            str(folder / name): hashlib.sha256(content).hexdigest()
            for name, content in self.scripts.items()
        }


def is_trusted(folder: Path, project: ProjectFiles, *, home: Path) -> bool:
    """Whether the settings and hook scripts of a folder, as they were read, are those that somebody
    has trusted. A folder without any is trusted."""
    if project == ProjectFiles(settings={}, scripts={}):
        return True
    return _read_trusted(home).get(os.path.realpath(folder)) == project.fingerprint


def trust(folder: Path, project: ProjectFiles, *, home: Path) -> None:
    """Trust a folder's settings and hook scripts as they were read.

    Raises: InvalidInput.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder")
    trusted = {**_read_trusted(home), os.path.realpath(folder): project.fingerprint}
    _write_trusted(trusted, home)


def trust_current_files(folder: Path, *, home: Path, read_scripts: ReadScripts) -> None:
    """Trust a folder's settings, and the files that its hooks run, as they are now.

    Raises: InvalidInput.
    """
    trust(folder, read_project_files(folder, home=home, read_scripts=read_scripts), home=home)


def edit_servers(
    folder: Path,
    scope: WritableScope,
    edit: Callable[[Path], bytes],
    *,
    home: Path,
    read_scripts: ReadScripts,
) -> Path:
    """Change a file that names MCP servers. A trusted folder stays trusted.

    Raises: InvalidInput.
    """
    file = servers_file(scope, folder=folder, home=home)
    project = read_project_files(folder, home=home, read_scripts=read_scripts)
    was_trusted = is_trusted(folder, project, home=home)
    content = edit(file)
    if scope == "project" and was_trusted:
        # trust the bytes read and written here: a program may have changed the files since
        servers = {**project.servers, file.name: content}
        trust(folder, replace(project, servers=servers), home=home)
    return file


def is_trusted_file(file: Path, content: bytes, *, home: Path) -> bool:
    """Whether somebody has trusted this content of a file that has its own trust."""
    return _read_trusted(home).get(os.path.realpath(file)) == _fingerprint({file.name: content})


def is_trusted_copy(file: Path, content: bytes, *, home: Path) -> bool:
    """Whether somebody has trusted this content in any file of this name."""
    return _fingerprint({file.name: content}) in _read_trusted(home).values()


def trust_file(file: Path, content: bytes, *, home: Path) -> None:
    """Raises: InvalidInput."""
    fingerprint = _fingerprint({file.name: content})
    _write_trusted({**_read_trusted(home), os.path.realpath(file): fingerprint}, home)


def model_key(file: Path) -> Path:
    """What the trust in the model that a file names is stored under."""
    return file.with_name(f"{file.name}{_MODEL_MARK}")


def distrust(folder: Path, *, home: Path) -> bool:
    """Revoke trust; False if the folder was not trusted."""
    trusted = _read_trusted(home)
    place = os.path.realpath(folder)
    models = [key for key in trusted if key.endswith(_MODEL_MARK) and key.startswith(f"{place}/")]
    files = (place, os.path.realpath(folder / MODELS_FILE), *models)
    was_trusted = any([trusted.pop(file, None) is not None for file in files])
    if was_trusted:
        _write_trusted(trusted, home)
    return was_trusted


def read_project_files(folder: Path, *, home: Path, read_scripts: ReadScripts) -> ProjectFiles:
    """A folder's settings, and its files that their hooks, or those of the user, run.

    Raises: InvalidInput.
    """
    folder = Path(os.path.realpath(folder))
    settings = read_project_settings(folder)
    users = (read_bounded(home / name) for name in USER_FILES)
    contents = (*settings.values(), *(content for content in users if content is not None))
    commands = [command for content in contents for command in _commands(content)]
    subagents = subagents_with_commands(Scopes(folder=folder), "project")
    hook_settings = (parts_of_subagent(content).hooks for content in subagents.values())
    commands += [command for hooks in hook_settings for command in _commands_in([hooks])]
    subagent_files = {path.relative_to(folder).as_posix(): text for path, text in subagents.items()}
    server_files = {name: read_bounded(folder / name) for name in SERVER_FILES}
    servers = {name: content for name, content in server_files.items() if content is not None}
    commands += [helper for content in servers.values() for helper in _header_helpers(content)]
    scripts: Mapping[str, bytes] = read_scripts(commands, folder) if commands else {}
    return ProjectFiles(
        settings=settings, scripts=scripts, subagents=subagent_files, servers=servers
    )


def subagents_with_commands(scopes: Scopes, scope: Literal["user", "project"]) -> dict[Path, bytes]:
    """The files of a scope's subagents with hooks or MCP servers of their own."""
    walk, contents = PartWalk(scopes), dict[Path, bytes]()
    places = (place for place in scopes.places("agents") if place.scope == scope)
    for place in places:
        for file in walk.files(place, select_markdown):
            with suppress(InvalidInput):
                content = read_bounded(file) or b""
                if _COMMAND_KEYS.search(content) and parts_of_subagent(content).has_commands:
                    contents[file] = content
    return contents


class SubagentParts(Struct, frozen=True):
    """The parts of a subagent's frontmatter that run something."""

    name: str
    hooks: dict[str, object]
    servers: dict[str, object]
    """MCP servers that it defines, by name."""

    @property
    def has_commands(self) -> bool:
        return bool(self.hooks or self.servers)


def parts_of_subagent(content: bytes) -> SubagentParts:
    fields = Fields(read_frontmatter(content.decode(errors="replace")), "")
    entries = read_servers(fields)
    tables = [cast("dict[str, object]", item) for item in entries if isinstance(item, dict)]
    servers = {str(name): entry for table in tables for name, entry in table.items()}
    return SubagentParts(" ".join(fields.text("name").split()), fields.mapping("hooks"), servers)


def _commands(content: bytes) -> Iterator[str]:
    """Commands with their arguments that a settings file names, even if the file is invalid."""
    fields = _decode_object(content)
    helper = {"command": fields.get("apiKeyHelper")}
    yield from _commands_in([fields.get("hooks"), fields.get("statusLine"), helper])


def _servers_in(content: bytes) -> dict[str, object]:
    fields = _decode_object(content)
    return as_object(fields.get("mcpServers", fields)) or {}


def _header_helpers(content: bytes) -> Iterator[str]:
    """Commands that print headers for MCP servers; they run outside the sandbox."""
    for entry in _servers_in(content).values():
        if isinstance(helper := (as_object(entry) or {}).get("headersHelper"), str):
            yield helper


def _decode_object(content: bytes) -> dict[str, object]:
    """Empty if it is not a JSON object."""
    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        value = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
        return cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return {}


def _commands_in(pending: list[object]) -> Iterator[str]:
    for value in pending:  # grows during the loop
        if isinstance(value, list):
            pending += cast("list[object]", value)
        elif isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            pending += fields.values()
            if isinstance(command := fields.get("command"), str):
                arguments = fields.get("args")
                words = cast("list[object]", arguments) if isinstance(arguments, list) else []
                yield "\n".join((command, *(str(word) for word in words)))


def read_project_settings(folder: Path) -> dict[str, bytes]:
    """The settings of a project, by file.

    Raises: InvalidInput.
    """
    contents = {name: _settings(folder / name) for name in PROJECT_FILES}
    contents |= {
        name: kiro_hooks.read_settings(folder / name) for name in kiro_hooks.hook_files(folder)
    }
    return {name: content for name, content in contents.items() if content is not None}


def _settings(file: Path) -> bytes | None:
    """The settings in a file; other content of the file may change without a new approval."""
    if file.name == manifest.FILE:
        settings = manifest.settings_in(file)
        return msgspec.json.encode(settings, order="sorted") if settings else None
    content = read_bounded(file)
    return _hooks(content) if content is not None and file.name == HOOKS_FILE else content


def _hooks(content: bytes) -> bytes | None:
    """`None` if it is some other program's file of the same name."""
    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        return msgspec.json.encode(msgspec.json.decode(content, type=_HooksFile))
    return None


def _fingerprint(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name}\0{len(contents[name])}\0".encode())
        digest.update(contents[name])
    return digest.hexdigest()


def _read_trusted(home: Path) -> dict[str, str]:
    file = home / TRUSTED_FILE
    content = read_bounded(file)
    try:
        return {} if content is None else msgspec.json.decode(content, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{file}: {error}; remove it to start over") from error


def _write_trusted(trusted: dict[str, str], home: Path) -> None:
    content = msgspec.json.format(msgspec.json.encode(trusted, order="sorted"), indent=2)
    write_atomic(home / TRUSTED_FILE, content + b"\n")


_PERMISSION_KEYS = ("allow", "ask", "deny", "defaultMode")
_BYPASS_MODE = "bypassPermissions"
_UNSCHEDULED_MESSAGE = (
    "not scheduled: in a scheduled session, which belongs to the service, this would not apply:"
    " {lost}. Remove it from the folder, or create a deployment with the API: the tools of its"
    " agent have permission policies"
)


def unscheduled_reason(project: ProjectFiles) -> str | None:
    """Why the schedule of a folder is not used; `None` if no restriction would be lost.

    Raises: InvalidInput: a file is not valid, so this is unknown.
    """
    restrictions = [
        f"{what} ({name})"
        for name, text in project.settings.items()
        for what in _ignored_restrictions(name, text)
    ]
    return _UNSCHEDULED_MESSAGE.format(lost=", ".join(restrictions)) if restrictions else None


def _ignored_restrictions(name: str, content: bytes) -> Iterator[str]:
    try:
        text = content.removeprefix(b"\xef\xbb\xbf") or b"{}"
        settings = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{name}: not a JSON object: {error}") from error
    permissions = as_object(settings.get("permissions")) or {}
    for key in _PERMISSION_KEYS:
        if (value := permissions.get(key)) and value != _BYPASS_MODE:
            yield f"permissions.{'mode' if key == 'defaultMode' else key}"
    if settings.get("hooks"):
        yield "hooks"
    if settings.get("sandbox"):
        yield "environment" if "schedule" in settings else "sandbox"
