"""Reads Kiro's hook files, `.kiro/hooks/<name>.json` of version v1, as hooks of a settings file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import file_errors
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.json_file import JsonFile, read_object

FOLDER = ".kiro/hooks"
OTHER_VERSION = 'it has another format: its `version` is not "v1"'
"""Why a file without fields is ignored."""
_TOOLS = {
    "execute_bash": "Bash",
    "fs_read": "Read",
    "fs_write": "Write|Edit",
    "str_replace": "Edit",
}
"""The names of our tools, by the names that Kiro's matchers use."""
_TOOL_NAME = re.compile(rf"\b(?:{'|'.join(_TOOLS)})\b")
_NonEmptyText: TypeAlias = Annotated[str, Meta(min_length=1)]


class _CommandAction(Struct, frozen=True, kw_only=True, tag_field="type", tag="command"):
    command: _NonEmptyText


class _AgentAction(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    prompt: _NonEmptyText


class _KiroHook(Struct, frozen=True, kw_only=True):
    trigger: str
    action: _CommandAction | _AgentAction
    matcher: str | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None
    enabled: bool = True


class _KiroFile(Struct, frozen=True, kw_only=True):
    hooks: tuple[_KiroHook, ...] = ()


def hook_files(folder: Path) -> list[str]:
    """The paths of a project's hook files, relative to its folder. A file is left out if its name
    is hidden, or cannot be printed: the name is part of messages and of the trusted hash.

    Raises: InvalidInput: the folder cannot be read.
    """
    place = folder / FOLDER
    with file_errors(str(place)):
        try:
            names = os.listdir(place)
        except (FileNotFoundError, NotADirectoryError):
            return []
    return sorted(f"{FOLDER}/{name}" for name in names if _is_hook_file(name))


def _is_hook_file(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".") and name.isprintable()


def read_files(folder: Path) -> Iterator[JsonFile | Finding]:
    """Yield the hooks of each file, as `read_hooks` returns them."""
    try:
        names = hook_files(folder)
    except InvalidInput as error:
        what = str(error).removeprefix(f"{folder / FOLDER}: ")
        yield Finding(level="error", file=FOLDER, what=what)
        return
    for name in names:
        if (hooks := read_hooks(folder / name, name)) is not None:
            yield hooks


def read_hooks(file: Path, display_path: str) -> JsonFile | Finding | None:
    """The hooks of a file in the form of a settings file, or a finding; no fields if the file has
    another version, and `None` if it does not exist."""
    kiro_file = read_object(file, display_path)
    if not isinstance(kiro_file, JsonFile):
        return kiro_file
    if kiro_file.fields.get("version") != "v1":
        return replace(kiro_file, fields={})
    try:
        hooks = msgspec.convert(kiro_file.fields, _KiroFile).hooks
    except msgspec.ValidationError as error:
        return kiro_file.finding("error", str(error), "hooks")
    events: dict[str, list[object]] = {}
    for hook in hooks:
        if hook.enabled:
            group = {"matcher": _matcher(hook.matcher or ""), "hooks": [_handler(hook)]}
            events.setdefault(hook.trigger, []).append(group)
    return replace(kiro_file, fields={"hooks": events})


def read_settings(file: Path) -> bytes | None:
    """The hooks of a file as a settings file; `None` if none is enabled.

    Raises:
        InvalidInput: the file is not valid. Continuing without its hooks would permit what they
            forbid.
    """
    kiro_file = read_hooks(file, str(file))
    if isinstance(kiro_file, Finding):
        raise InvalidInput(f"{file}: {kiro_file.what}")
    if kiro_file is None or not kiro_file.fields.get("hooks"):
        return None
    return msgspec.json.encode(kiro_file.fields)


def _matcher(matcher: str) -> str:
    return _TOOL_NAME.sub(lambda name: _TOOLS[name[0]], matcher)


def _handler(hook: _KiroHook) -> dict[str, object]:
    timeout = {} if hook.timeout is None else {"timeout": hook.timeout}
    match hook.action:
        case _CommandAction(command=command):
            return {"type": "command", "command": command, **timeout}
        case _AgentAction(prompt=prompt):
            return {"type": "remind", "text": prompt, **timeout}
