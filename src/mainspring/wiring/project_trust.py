"""Folders whose settings and hook scripts somebody has trusted as they were then, and why an
untrusted or restricted folder is not scheduled.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.definition_files.atomic_file import read_bounded, write_atomic
from mainspring.runtime.definition_files.frontmatter_fields import Fields, read_frontmatter
from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.definition_files.scopes import PartWalk, Scopes, select_markdown
from mainspring.runtime.definition_files.settings_file import SettingsFile

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import scripts
else:
    scripts = LazyModule("mainspring.capabilities.hooks.scripts")  # most projects have none


_HOOKS_KEY = re.compile(rb"^hooks\s*:", re.MULTILINE)
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
TRUSTED_FILE = ".mainspring/trusted.json"
_ORIGINAL_KEYS = frozenset(
    (
        *("permissions", "hooks", "sandbox", "disableAllHooks"),
        *("allowManagedPermissionRulesOnly", "hooksFailOpen"),
    )
)
"""Had an effect when trust was first given. Never add to these: see `_ADDED_KEYS`."""
_ADDED_KEYS = {field.encode_name for field in msgspec.structs.fields(SettingsFile)} - _ORIGINAL_KEYS
"""Have one since. A key that a later version adds is among them by itself."""


class _HooksFile(Struct, frozen=True):
    hooks: dict[str, list[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFiles:
    """What somebody vouches for: read once, so that what is judged is what holds."""

    settings: Mapping[str, bytes]
    """By the file that they stand in."""
    scripts: Mapping[str, bytes]
    """What hooks run of the folder, by the path from there on."""
    subagents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files of subagents that have hooks."""

    @property
    def fingerprint(self) -> str:
        """Of the bytes, and of which settings in them have an effect: trust that was given when one
        of them had none does not cover it."""
        named = {f"runs {name}": content for name, content in self.scripts.items()}
        keys = {
            f"honours {name}": ",".join(added).encode()
            for name, content in self.settings.items()
            if (added := sorted(_decode_object(content).keys() & _ADDED_KEYS))
        }
        return _fingerprint({**self.settings, **self.subagents, **named, **keys})

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """What it has run outside of the sandbox, and who says so."""
        for file, content in self.settings.items():
            fields = _decode_object(content)
            for key in ("hooks", "statusLine", "apiKeyHelper"):
                value = fields.get(key)
                said = as_object(value) or {"command": value}
                yield from ((item, f"{key}, {file}") for item in _commands_in([said]))
        for file, content in self.subagents.items():
            hooks = hooks_of_subagent(content)[1]
            yield from ((item, f"hooks, {file}") for item in _commands_in([hooks]))

    @property
    def variables(self) -> Iterator[tuple[str, str]]:
        """Names of those that it sets, without values, which may be secrets; and who says so."""
        for file, content in self.settings.items():
            if env := as_object(_decode_object(content).get("env")):
                yield ", ".join(env), f"env, {file}"

    def script_hashes(self, folder: Path) -> dict[str, str]:
        return {
            str(folder / name): scripts.digest(content) for name, content in self.scripts.items()
        }


def is_trusted(folder: Path, project_files: ProjectFiles, *, home: Path) -> bool:
    """Whether a folder's settings and what hooks run of it, as they were read, are those that
    somebody has vouched for. Where there are none, there is nothing to distrust."""
    if not project_files.settings and not project_files.scripts and not project_files.subagents:
        return True
    return _read_trusted(home).get(os.path.realpath(folder)) == project_files.fingerprint


def trust(folder: Path, *, home: Path, project_files: ProjectFiles | None = None) -> None:
    """Vouch for a folder's settings and what hooks run of it: as they are now, or as given.

    Raises: InvalidInput.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder")
    vouched = read_project_files(folder, home=home) if project_files is None else project_files
    _write_trusted({**_read_trusted(home), os.path.realpath(folder): vouched.fingerprint}, home)


def distrust(folder: Path, *, home: Path) -> bool:
    """Take it back; False if there was nothing to take back."""
    known = _read_trusted(home)
    was_known = known.pop(os.path.realpath(folder), None) is not None
    if was_known:
        _write_trusted(known, home)
    return was_known


def read_project_files(folder: Path, *, home: Path) -> ProjectFiles:
    """Its settings, and the files that the hooks in them run, and those of the user.

    Raises: InvalidInput.
    """
    folder = Path(os.path.realpath(folder))
    settings = read_project_settings(folder)
    users = (read_bounded(home / name) for name in USER_FILES)
    every = (*settings.values(), *(content for content in users if content is not None))
    commands = [command for content in every for command in _commands(content)]
    subagents = subagents_with_hooks(Scopes(folder=folder))
    described = (hooks_of_subagent(content)[1] for content in subagents.values())
    commands += [command for said in described for command in _commands_in([said])]
    run = scripts.read_scripts(commands, folder, project=folder) if commands else {}
    named = {path.relative_to(folder).as_posix(): text for path, text in subagents.items()}
    return ProjectFiles(settings=settings, scripts=run, subagents=named)


def subagents_with_hooks(scopes: Scopes) -> dict[Path, bytes]:
    """The files of subagents, but for those of plugins, that have hooks."""
    walk, found = PartWalk(scopes), dict[Path, bytes]()
    for place in scopes.places("agents"):
        for file in walk.files(place, select_markdown):
            with suppress(InvalidInput):
                content = read_bounded(file) or b""
                if _HOOKS_KEY.search(content):
                    found[file] = content
    return found


def hooks_of_subagent(content: bytes) -> tuple[str, dict[str, object]]:
    """Name and hooks that the frontmatter of a subagent's file has."""
    fields = Fields(read_frontmatter(content.decode(errors="replace")), "")
    return " ".join(fields.text("name").split()), fields.mapping("hooks")


def _commands(content: bytes) -> Iterator[str]:
    """That a settings file has run, whatever else is wrong with it; with their arguments."""
    fields = _decode_object(content)
    helper = {"command": fields.get("apiKeyHelper")}
    yield from _commands_in([fields.get("hooks"), fields.get("statusLine"), helper])


def _decode_object(content: bytes) -> dict[str, object]:
    """Empty if it is no JSON object."""
    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        whole = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
        return cast("dict[str, object]", whole) if isinstance(whole, dict) else {}
    return {}


def _commands_in(pending: list[object]) -> Iterator[str]:
    for value in pending:  # grows while it is gone through
        if isinstance(value, list):
            pending += cast("list[object]", value)
        elif isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            pending += fields.values()
            if isinstance(command := fields.get("command"), str):
                listed = fields.get("args")
                words = cast("list[object]", listed) if isinstance(listed, list) else []
                yield "\n".join((command, *(str(word) for word in words)))


def read_project_settings(folder: Path) -> dict[str, bytes]:
    """The settings that a project has, by the file that they stand in.

    Raises: InvalidInput.
    """
    found = {name: _settings(folder / name) for name in PROJECT_FILES}
    return {name: content for name, content in found.items() if content is not None}


def _settings(file: Path) -> bytes | None:
    """Of a file that says other things too, only what is a setting: the rest may change."""
    if file.name == manifest.FILE:
        said = manifest.settings_in(file)
        return msgspec.json.encode(said, order="sorted") if said else None
    content = read_bounded(file)
    return _hooks(content) if content is not None and file.name == HOOKS_FILE else content


def _hooks(content: bytes) -> bytes | None:
    """`None`: it is called like ours, and is something else."""
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
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"{file}: {error}; remove it to begin anew") from error


def _write_trusted(known: dict[str, str], home: Path) -> None:
    content = msgspec.json.format(msgspec.json.encode(known, order="sorted"), indent=2)
    write_atomic(home / TRUSTED_FILE, content + b"\n")


_PERMISSION_KEYS = ("allow", "ask", "deny", "defaultMode")
_BYPASS_MODE = "bypassPermissions"
_UNSCHEDULED_MESSAGE = (
    "not scheduled: a scheduled session is one of the service, where this would not hold: {lost}."
    " Remove it from the folder, or create a deployment with the API: the tools of its agent have"
    " permission policies"
)


def unscheduled_reason(project_files: ProjectFiles) -> str | None:
    """Why the schedule of a folder does not hold; `None`: nothing that restricts would be lost.

    Raises: InvalidInput: a file cannot be understood, so nobody can tell.
    """
    lost = [
        f"{what} ({name})"
        for name, text in project_files.settings.items()
        for what in _ignored_restrictions(name, text)
    ]
    return _UNSCHEDULED_MESSAGE.format(lost=", ".join(lost)) if lost else None


def _ignored_restrictions(name: str, content: bytes) -> Iterator[str]:
    try:
        text = content.removeprefix(b"\xef\xbb\xbf") or b"{}"
        said = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{name}: not a JSON object: {error}") from error
    permissions = as_object(said.get("permissions")) or {}
    for key in _PERMISSION_KEYS:
        if (value := permissions.get(key)) and value != _BYPASS_MODE:
            yield f"permissions.{'mode' if key == 'defaultMode' else key}"
    if said.get("hooks"):
        yield "hooks"
    if said.get("sandbox"):
        yield "environment" if "schedule" in said else "sandbox"
