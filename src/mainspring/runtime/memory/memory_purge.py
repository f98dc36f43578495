"""Removing a memory for good: its file, the contents of its versions, and what the index file said
of it. Its text in logs is removed by `log/redaction.py`.
"""

from __future__ import annotations

from contextlib import suppress

from mainspring.core.errors import NotFound
from mainspring.files.beneath import open_folder
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import (
    Change,
    MemoryVersion,
    locked,
    purge_mentions,
    version_content,
)
from mainspring.runtime.memory.note import INDEX_FILE, parse_note


def stored_texts(folder: MemoryFolder, path: str) -> list[str]:
    """What a memory says and has said, to find it elsewhere. Blocks.

    Raises: NotFound.
    """
    contents = [folder.content(path)]
    history = folder.history(path)
    with open_folder(folder.root) as root:
        for version in history:
            with suppress(NotFound):
                contents.append(version_content(root, version))
    notes = [parse_note(path, content.decode("utf-8", "replace")) for content in contents]
    texts = [text for note in notes for text in (note.body, note.description)]
    return list(dict.fromkeys(filter(None, texts)))


def purge_memory(folder: MemoryFolder, path: str, change: Change) -> MemoryVersion:
    """Forget it and leave no content of it. Blocks. Raises: NotFound."""
    version = folder.forget(path, change, purges=True)
    with open_folder(folder.root) as root, locked(root):
        purge_mentions(root, INDEX_FILE, f"]({path})".encode())
    return version
