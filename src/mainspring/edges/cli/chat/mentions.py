"""`@file`, `@folder` and `@url` in a message: attaches files, folders and pages."""

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
_MAX_ENTRIES = 500  # of a folder
_MAX_FILE_BYTES = 5_000_000  # of a file, before its limit in tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedMessage:
    blocks: tuple[Block, ...]
    """The attachments, then the message as it was typed."""
    attached: tuple[str, ...]
    """The names of attached files and folders."""
    permissions: tuple[PermissionUpdate, ...]
    """Permissions to fetch the mentioned pages."""


async def expand_mentions(message: str, folder: Path) -> ExpandedMessage:
    """A mention of something that does not exist stays plain text.

    Raises:
        InvalidInput: a file cannot be read, or is too large.
    """
    blocks: list[Block] = []
    attached: list[str] = []
    permissions: list[PermissionUpdate] = []
    mentions = dict.fromkeys(match[1] or match[2] for match in _MENTION.finditer(message))
    for mention in mentions:
        if mention.startswith(("http://", "https://")) and urlsplit(mention).hostname:
            rule = always_allow_rule("web_fetch", {"url": mention})
            permissions += [] if rule is None else [rule_update(rule)]
        elif (name := await to_thread.run_sync(_existing_name, mention, folder)) is not None:
            blocks += await _attachment(name, _path(name, folder))
            attached.append(name)
    return ExpandedMessage(
        blocks=(*blocks, TextBlock(message)),
        attached=tuple(attached),
        permissions=tuple(permissions),
    )


def _existing_name(mention: str, folder: Path) -> str | None:
    """The name of an existing file or folder: the mention, or it without trailing punctuation."""
    for name in (mention, mention.rstrip(_TRAILING)):
        path = _path(name, folder)
        if name and (path.is_file() or path.is_dir()):
            return name
    return None


def _path(name: str, folder: Path) -> Path:
    return folder / Path(name).expanduser()


async def _attachment(name: str, path: Path) -> tuple[Block, ...]:
    listing = await to_thread.run_sync(_listing, name, path)
    if listing is not None:
        return (TextBlock(f"<folder path={name!r}>\n{listing}\n</folder>"),)
    return await content_blocks([path])


def _listing(name: str, folder: Path) -> str | None:
    """The names in a folder; `None` if it is a file.

    Raises: InvalidInput: the file is too large.
    """
    if not folder.is_dir():
        if folder.stat().st_size > _MAX_FILE_BYTES:
            raise InvalidInput(
                f"@{name} is larger than {_MAX_FILE_BYTES:,} bytes; name it without @, and"
                " the agent reads what it needs"
            )
        return None
    with os.scandir(folder) as entries:
        names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    remaining = [f"... and {len(names) - _MAX_ENTRIES} more"] if len(names) > _MAX_ENTRIES else []
    return "\n".join([*names[:_MAX_ENTRIES], *remaining])
