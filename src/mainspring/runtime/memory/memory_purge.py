"""Purging a memory: removes its file, the contents of its versions, its lines in past index files,
its entry in the search index, and its text in the logs of all sessions.

The memory is hidden first, and the contents of its versions are removed last. So after a crash at
any point the same command continues: the text to search for is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from anyio import to_thread

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.log.redaction import redact_texts
from mainspring.log.session_log import SessionLog
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import (
    Change,
    NoteVersion,
    begin_purge,
    locked,
    purge_contents,
    purge_mentions,
    version_content,
)
from mainspring.runtime.memory.note import INDEX_FILE, parse_note


async def purge_memory(
    folder: MemoryFolder,
    path: str,
    change: Change,
    *,
    log: SessionLog | None,
    purge_index: Callable[[], None],
) -> tuple[NoteVersion, int]:
    """Return the version that removed it, and the number of log events that had its text.

    Raises:
        NotFound: there is no such memory, and none whose purge was not finished.
        InvalidInput: sessions are running; the memory is hidden, but its text is still stored.
    """
    version = await to_thread.run_sync(_hide, folder, path, change)
    texts = await to_thread.run_sync(stored_texts, folder, path)
    events = 0
    if log is not None:
        why = f"memory purged: {change.reason}"
        report = await redact_texts(log, texts, reason=why, by=change.author)
        if report.held:
            raise InvalidInput(
                f"{path} is forgotten, but sessions are running that may quote it:"
                f" {', '.join(report.held)}; run this again later"
            )
        events = report.events
    await to_thread.run_sync(purge_index)
    await to_thread.run_sync(_remove_contents, folder, path)
    return version, events


def stored_texts(folder: MemoryFolder, path: str) -> list[str]:
    """Return all texts that a memory has had, to find them elsewhere. Blocks."""
    contents: list[bytes] = []
    with folder.open_files() as files:
        for version in folder.history(path):
            with suppress(NotFound):
                contents.append(version_content(files, version))
    notes = [parse_note(path, content.decode("utf-8", "replace")) for content in contents]
    texts = [text for note in notes for text in (note.body, note.description)]
    return list(dict.fromkeys(filter(None, texts)))


def _hide(folder: MemoryFolder, path: str, change: Change) -> NoteVersion:
    is_begun = path in folder.unfinished_purges()
    if not is_begun:
        folder.content(path)
        with folder.open_files() as files, locked(files):
            begin_purge(files, path)
    with suppress(NotFound):
        return folder.forget(path, change)
    folder.remove_from_index(path, change)
    return folder.history(path)[0]


def _remove_contents(folder: MemoryFolder, path: str) -> None:
    with folder.open_files() as files, locked(files):
        purge_mentions(files, INDEX_FILE, f"]({path})".encode())
        purge_contents(files, path)
