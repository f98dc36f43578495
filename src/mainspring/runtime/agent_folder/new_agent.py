"""Writes the first files of a new agent: just enough to run it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from mainspring.core.errors import InvalidInput
from mainspring.error_table import with_hints
from mainspring.runtime.agent_folder import manifest

INSTRUCTIONS = "AGENTS.md"
_INSTRUCTION_FILES = (INSTRUCTIONS, "CLAUDE.md", ".claude/CLAUDE.md")
_HEAD = "# What this agent is. All of it is optional; `mainspring validate` says what it does.\n"
_TEXT = """\
# {name}

{purpose}

## How to work
- Look before you act, and make the smallest change that does the job.
- Check what you did: run it or read it back, and say how you know that it works.
- When something is unclear or cannot be undone, ask first.
"""
_SUBAGENT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_SUBAGENT_TEXT = """\
You do one piece of work for another agent. It sees only your last message: end with the result,
and say what you could not do or did not check.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgent:
    """The description of an agent that does not exist yet."""

    name: str
    purpose: str
    model: str | None = None
    """`None`: any model that is available where it runs."""
    tools: tuple[str, ...] | None = None
    """`None`: all."""
    mode: str | None = None


def write_agent(folder: Path, new_agent: NewAgent) -> list[Path]:
    """Write the missing files and return them. Existing files are not changed.

    Raises:
        InvalidInput: there is an agent already, or the folder is not writable.
    """
    check_no_agent(folder)
    texts = {manifest.FILE: manifest_text(new_agent)}
    if not any((folder / name).exists() for name in _INSTRUCTION_FILES):
        texts[INSTRUCTIONS] = _TEXT.format(name=new_agent.name, purpose=new_agent.purpose)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write_new(folder / name, text) for name, text in texts.items()]
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder}: {error.strerror or error}") from error


def new_subagent(folder: Path, name: str, description: str) -> Path:
    """Write the file of a subagent, and return it.

    Raises:
        InvalidInput: the name is invalid, the file exists, or the folder is not writable.
    """
    if not _SUBAGENT_NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r}: a name consists of at most 64 lowercase letters, digits and -"
        )
    fields = {"name": name, "description": description or "Say when to call it."}
    head = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100)
    file = folder / f"{name}.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _write_new(file, f"---\n{head}---\n{_SUBAGENT_TEXT}")
    except FileExistsError:
        raise InvalidInput(f"{file} exists already: nothing was written") from None
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder}: {error.strerror or error}") from error


def check_no_agent(folder: Path) -> None:
    """Raises: InvalidInput: there is an agent already."""
    if (folder / manifest.FILE).exists():
        error = InvalidInput(f"{folder / manifest.FILE} exists already: nothing was written")
        raise with_hints(error, "`mainspring validate` says what it does")


def manifest_text(new_agent: NewAgent) -> str:
    fields: dict[str, object] = {"name": new_agent.name, "description": new_agent.purpose}
    if new_agent.model is not None:
        fields["model"] = new_agent.model
    if new_agent.tools is not None:
        fields["tools"] = list(new_agent.tools)
    if new_agent.mode is not None:
        fields["permissions"] = {"mode": new_agent.mode}
    fields["limits"] = {"max_turns": 100}
    return _HEAD + yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100)


def _write_new(file: Path, text: str) -> Path:
    with file.open("x", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
    return file
