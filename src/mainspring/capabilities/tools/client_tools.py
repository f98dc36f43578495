"""Tools that a client runs in its own environment. We only declare their inputs.

They are the tools of the Managed Agents toolset, as its workers implement them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from mainspring.core.tool import Tool, Traits
from mainspring.function_tools.define import tool

Range = Annotated[list[int], Meta(min_length=2, max_length=2)]


@tool
async def bash(
    command: str | None = None, restart: bool = False, timeout_ms: int | None = None
) -> str:
    """Run a command in a shell that stays open between calls.

    Args:
        command: The command to run.
        restart: Start a new shell instead, if this one hangs.
        timeout_ms: Stop the command after this many milliseconds.
    """
    raise NotImplementedError((command, restart, timeout_ms))


@tool
async def read(file_path: str, view_range: Range | None = None) -> str:
    """Read a file.

    Args:
        file_path: Absolute, or relative to the working folder.
        view_range: First and last line to show, counted from 1; -1 as the last is the end.
    """
    raise NotImplementedError((file_path, view_range))


@tool
async def write(file_path: str, content: str) -> str:
    """Write a whole file, and create its folders if they do not exist.

    Args:
        file_path: Absolute, or relative to the working folder.
        content: The whole content of the file.
    """
    raise NotImplementedError((file_path, content))


@tool
async def edit(file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
    """Replace a text in a file.

    Args:
        file_path: Absolute, or relative to the working folder.
        old_string: The text to replace, exactly as in the file. It must occur once, unless
            replace_all is set.
        new_string: The new text.
        replace_all: Replace every occurrence.
    """
    raise NotImplementedError((file_path, old_string, new_string, replace_all))


@tool
async def glob(pattern: str, path: str | None = None) -> str:
    """Find files by their names.

    Args:
        pattern: Such as `**/*.py`.
        path: The folder to search; by default the working folder.
    """
    raise NotImplementedError((pattern, path))


@tool
async def grep(pattern: str, path: str | None = None) -> str:
    """Find lines in files by a regular expression.

    Args:
        pattern: The regular expression.
        path: A file or folder to search; by default the working folder.
    """
    raise NotImplementedError((pattern, path))


def _client_traits(_input: Mapping[str, object]) -> Traits:
    return Traits(by_client=True)


def client_tools(names: Collection[str]) -> list[Tool]:
    """The tools of these names that a client runs."""
    return [
        replace(item, traits=_client_traits)
        for item in (bash, read, write, edit, glob, grep)
        if item.spec.name in names
    ]
