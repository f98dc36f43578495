"""Folders whose settings, and what hooks run there, somebody has vouched for as they were then."""

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
from mainspring.core.lazy import LazyModule
from mainspring.runtime.folder import manifest
from mainspring.runtime.folder.frontmatter import Fields, read_head
from mainspring.runtime.folder.json_file import as_object
from mainspring.runtime.folder.scopes import Scopes
from mainspring.runtime.folder.walking import Walk, markdown
from mainspring.runtime.folder.whole_file import read_bounded, write_whole
from mainspring.wiring.settings_file import SettingsFile

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
_FIRST_KEYS = frozenset(
    (
        *("permissions", "hooks", "sandbox", "disableAllHooks"),
        *("allowManagedPermissionRulesOnly", "hooksFailOpen"),
    )
)
"""Had an effect when trust was first given. Never add to these: see `_ADDED_KEYS`."""
_ADDED_KEYS = {field.encode_name for field in msgspec.structs.fields(SettingsFile)} - _FIRST_KEYS
"""Have one since. A key that a later version adds is among them by itself."""


class _Hooks(Struct, frozen=True):
    hooks: dict[str, list[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
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
            if (added := sorted(_decoded(content).keys() & _ADDED_KEYS))
        }
        return _fingerprint({**self.settings, **self.subagents, **named, **keys})

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """What it has run outside of the sandbox, and who says so."""
        for file, content in self.settings.items():
            fields = _decoded(content)
            for key in ("hooks", "statusLine", "apiKeyHelper"):
                value = fields.get(key)
                said = as_object(value) or {"command": value}
                yield from ((each, f"{key}, {file}") for each in _commands_in([said]))
        for file, content in self.subagents.items():
            hooks = hooks_of_subagent(content)[1]
            yield from ((each, f"hooks, {file}") for each in _commands_in([hooks]))

    @property
    def variables(self) -> Iterator[tuple[str, str]]:
        """Names of those that it sets, without values, which may be secrets; and who says so."""
        for file, content in self.settings.items():
            if env := as_object(_decoded(content).get("env")):
                yield ", ".join(env), f"env, {file}"

    def pinned(self, folder: Path) -> dict[str, str]:
        return {
            str(folder / name): scripts.digest(content) for name, content in self.scripts.items()
        }


def is_trusted(folder: Path, project: Project, *, home: Path) -> bool:
    """Whether a folder's settings and what hooks run of it, as they were read, are those that
    somebody has vouched for. Where there are none, there is nothing to distrust."""
    if not project.settings and not project.scripts and not project.subagents:
        return True
    return _known(home).get(os.path.realpath(folder)) == project.fingerprint


def trust(folder: Path, *, home: Path, project: Project | None = None) -> None:
    """Vouch for a folder's settings and what hooks run of it: as they are now, or as given.

    Raises: InvalidInput.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder")
    vouched = read_whole_project(folder, home=home) if project is None else project
    _keep({**_known(home), os.path.realpath(folder): vouched.fingerprint}, home)


def distrust(folder: Path, *, home: Path) -> bool:
    """Take it back; False if there was nothing to take back."""
    known = _known(home)
    was_known = known.pop(os.path.realpath(folder), None) is not None
    if was_known:
        _keep(known, home)
    return was_known


def read_whole_project(folder: Path, *, home: Path) -> Project:
    """Its settings, and the files that the hooks in them run, and those of the user.

    Raises: InvalidInput.
    """
    folder = Path(os.path.realpath(folder))
    settings = read_project(folder)
    users = (read_bounded(home / name) for name in USER_FILES)
    every = (*settings.values(), *(content for content in users if content is not None))
    commands = [command for content in every for command in _commands(content)]
    subagents = subagents_with_hooks(Scopes(folder=folder))
    described = (hooks_of_subagent(content)[1] for content in subagents.values())
    commands += [command for said in described for command in _commands_in([said])]
    run = scripts.read_scripts(commands, folder, project=folder) if commands else {}
    named = {path.relative_to(folder).as_posix(): text for path, text in subagents.items()}
    return Project(settings=settings, scripts=run, subagents=named)


def subagents_with_hooks(scopes: Scopes) -> dict[Path, bytes]:
    """The files of subagents, but for those of plugins, that have hooks."""
    walk, found = Walk(scopes), dict[Path, bytes]()
    for place in scopes.places("agents"):
        for file in walk.files(place, markdown):
            with suppress(InvalidInput):
                content = read_bounded(file) or b""
                if _HOOKS_KEY.search(content):
                    found[file] = content
    return found


def hooks_of_subagent(content: bytes) -> tuple[str, dict[str, object]]:
    """Name and hooks that the frontmatter of a subagent's file has."""
    fields = Fields(read_head(content.decode(errors="replace")), "")
    return " ".join(fields.text("name").split()), fields.mapping("hooks")


def _commands(content: bytes) -> Iterator[str]:
    """That a settings file has run, whatever else is wrong with it; with their arguments."""
    fields = _decoded(content)
    helper = {"command": fields.get("apiKeyHelper")}
    yield from _commands_in([fields.get("hooks"), fields.get("statusLine"), helper])


def _decoded(content: bytes) -> dict[str, object]:
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


def read_project(folder: Path) -> dict[str, bytes]:
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
        return msgspec.json.encode(msgspec.json.decode(content, type=_Hooks))
    return None


def _fingerprint(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name}\0{len(contents[name])}\0".encode())
        digest.update(contents[name])
    return digest.hexdigest()


def _known(home: Path) -> dict[str, str]:
    file = home / TRUSTED_FILE
    content = read_bounded(file)
    try:
        return {} if content is None else msgspec.json.decode(content, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"{file}: {error}; remove it to begin anew") from error


def _keep(known: dict[str, str], home: Path) -> None:
    content = msgspec.json.format(msgspec.json.encode(known, order="sorted"), indent=2)
    write_whole(home / TRUSTED_FILE, content + b"\n")
