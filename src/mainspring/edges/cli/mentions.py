"""`@file`, `@folder` and `@url` in a message: what is mentioned goes along with it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from anyio import to_thread

from mainspring.core.content import Block, TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import PermissionUpdate
from mainspring.harness.permissions.always_allow import always_allow_rule, rule_update
from mainspring.runtime.session.message_content import content_blocks

_MENTION = re.compile(r'(?:(?<=\s)|^)@(?:"([^"\n]{1,1000})"|([^\s"]{1,2000}))')
_TRAILING = ".,;:!?)]}'"
_MAX_ENTRIES = 500
_MAX_FILE_BYTES = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedMessage:
    blocks: tuple[Block, ...]
    """What is mentioned, then the message as it was typed."""
    attached: tuple[str, ...]
    """The files and folders that go along."""
    permissions: tuple[PermissionUpdate, ...]
    """To fetch the pages that are mentioned."""


async def expand_mentions(message: str, folder: Path) -> ExpandedMessage:
    """A mention that is no path is text like any other.

    Raises:
        InvalidInput: a file cannot be read, or is too large.
    """
    blocks: list[Block] = []
    attached: list[str] = []
    permissions: list[PermissionUpdate] = []
    for mentioned in dict.fromkeys(_mentions(message)):
        if mentioned.startswith(("http://", "https://")) and urlsplit(mentioned).hostname:
            rule = always_allow_rule("web_fetch", {"url": mentioned})
            permissions += [] if rule is None else [rule_update(rule)]
        elif (name := await to_thread.run_sync(_existing, mentioned, folder)) is not None:
            blocks += await _attachment(name, _path(name, folder))
            attached.append(name)
    return ExpandedMessage(
        blocks=(*blocks, TextBlock(message)),
        attached=tuple(attached),
        permissions=tuple(permissions),
    )


def _mentions(message: str) -> list[str]:
    return [match[1] or match[2] for match in _MENTION.finditer(message)]


def _existing(mentioned: str, folder: Path) -> str | None:
    """The name of the file or folder; without the punctuation behind it, if only that exists."""
    for name in (mentioned, mentioned.rstrip(_TRAILING)):
        path = _path(name, folder)
        if name and (path.is_file() or path.is_dir()):
            return name
    return None


def _path(name: str, folder: Path) -> Path:
    return folder / Path(name).expanduser()


async def _attachment(mentioned: str, path: Path) -> tuple[Block, ...]:
    listing = await to_thread.run_sync(_listing, mentioned, path)
    if listing is not None:
        return (TextBlock(f"<folder path={mentioned!r}>\n{listing}\n</folder>"),)
    return await content_blocks([path])


def _listing(mentioned: str, folder: Path) -> str | None:
    """The names in a folder; `None` if it is a file."""
    if not folder.is_dir():
        if folder.stat().st_size > _MAX_FILE_BYTES:
            raise InvalidInput(
                f"@{mentioned} is larger than {_MAX_FILE_BYTES:,} bytes; name it without @, and"
                " the agent reads what it needs"
            )
        return None
    with os.scandir(folder) as entries:
        names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    more = [f"... and {len(names) - _MAX_ENTRIES} more"] if len(names) > _MAX_ENTRIES else []
    return "\n".join([*names[:_MAX_ENTRIES], *more])
