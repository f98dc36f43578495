"""Reads Kiro's hook files, `.kiro/hooks/<name>.json` of version v1, as hooks of a settings file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.json_file import JsonFile, read_object

FOLDER = ".kiro/hooks"
_TOOLS = {
    "execute_bash": "Bash",
    "fs_read": "Read",
    "fs_write": "Write|Edit",
    "str_replace": "Edit",
}
"""Kiro's names of tools in matchers -> the names here."""
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
    """The paths of a project's hook files, relative to its folder."""
    return sorted(f"{FOLDER}/{path.name}" for path in folder.joinpath(FOLDER).glob("*.json"))


def read_hooks(file: Path, display_path: str) -> JsonFile | Finding | None:
    """The hooks of a file as a settings file has them, or a finding; no fields if the file has
    another format, and `None` if it does not exist."""
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
    """The hooks of a file as a settings file; `None` if it has none.

    Raises:
        InvalidInput: the file is not valid; without it, its hooks could not forbid anything.
    """
    kiro_file = read_hooks(file, str(file))
    if isinstance(kiro_file, Finding):
        raise InvalidInput(f"{file}: {kiro_file.what}")
    return msgspec.json.encode(kiro_file.fields) if kiro_file and kiro_file.fields else None


def _matcher(matcher: str) -> str:
    return _TOOL_NAME.sub(lambda name: _TOOLS[name[0]], matcher)


def _handler(hook: _KiroHook) -> dict[str, object]:
    timeout = {} if hook.timeout is None else {"timeout": hook.timeout}
    match hook.action:
        case _CommandAction(command=command):
            return {"type": "command", "command": command, **timeout}
        case _AgentAction(prompt=prompt):
            return {"type": "remind", "text": prompt, **timeout}
