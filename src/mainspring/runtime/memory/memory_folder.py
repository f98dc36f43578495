"""A folder of memories. Its files are the only source of truth. Each change through this module is
a version; an edit by hand becomes a version when it is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace as replace_struct

from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, MemoryChanged, NotFound
from mainspring.core.sender import Sender
from mainspring.files.beneath import open_folder, read_beginning
from mainspring.files.written_files import make_folders
from mainspring.harness.permissions.protected_path_watcher import is_memory_folder
from mainspring.log.provenance import PROCESS_KEY, Provenance
from mainspring.runtime.memory.memory_files import (
    MARKER,
    ContentSeal,
    MemoryFiles,
    markdown_files,
    open_files,
)
from mainspring.runtime.memory.memory_quota import MemoryQuota, check_quota
from mainspring.runtime.memory.memory_versions import (
    LEDGER,
    Change,
    NoteVersion,
    Operation,
    Reader,
    add_readers,
    apply_version,
    convert_files,
    finish_pending,
    latest_version,
    ledger_stamp,
    locked,
    read_purges,
    read_readers,
    read_versions,
    record_version,
    version_content,
)
from mainspring.runtime.memory.note import (
    INDEX_FILE,
    MAX_BYTES,
    Note,
    Trust,
    cap_trust,
    check_note_path,
    content_hash,
    has_git_conflict,
    parse_note,
    render_note,
    text_diff,
    with_index_line,
    without_index_line,
)

MAX_NOTES = 100_000  # of one scope
_ON_DISK = Change(author=Sender(kind="system", id="disk"), reason="edited on disk")


class FolderOptions(Struct, frozen=True, kw_only=True):
    quota: MemoryQuota | None = None
    index_above: bool = False
    """Whether to read `MEMORY.md` in the parent folder too, where other tools write it."""
    content_seal: ContentSeal | None = None
    """For an encrypted folder."""
    is_of_person: bool = False
    """Whether only this person writes there: programs and repositories cannot."""
    provenance: Callable[[], Provenance] = partial(Provenance, PROCESS_KEY)
    """Recognizes what this installation recorded; asked for at the first use."""


_NO_OPTIONS = FolderOptions()


class MemoryFolder:
    """Blocks. `refuse` returns why a text must not be remembered, for example a secret in it."""

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        new_id: Callable[[str], str],
        refuse: Callable[[str], str | None] = lambda _: None,
        options: FolderOptions = _NO_OPTIONS,
    ) -> None:
        self.root = root
        self._clock = clock
        self._new_id = new_id
        self.refuse = refuse
        self._options = options
        self._recorded: tuple[object, dict[str, str]] = (None, {})
        """The recorded hashes, and the state of the ledger they come from."""

    @property
    def is_present(self) -> bool:
        """Whether there are memories: in a folder without source code, or in the index above it."""
        if self._options.index_above and not self.root.exists():
            return (self.root.parent / INDEX_FILE).is_file()
        return is_memory_folder(self.root)

    def index_above(self) -> str:
        """The beginning of the parent folder's `MEMORY.md`, if it is read. Raises: InvalidInput."""
        if not self._options.index_above or not self.root.parent.is_dir():
            return ""
        with open_folder(self.root.parent) as above:
            content = read_beginning(above, INDEX_FILE, MAX_BYTES) or b""
        return content.decode("utf-8", "replace")

    @property
    def is_encrypted(self) -> bool:
        return (self.root / MARKER).is_file()

    def open_files(self) -> AbstractContextManager[MemoryFiles]:
        return open_files(self.root, self._options.content_seal)

    def encrypt(self) -> int:
        """Encrypt all files and versions and return their number. After a crash, run it again."""
        make_folders(self.root)
        with self.open_files() as files, locked(files):
            finish_pending(files)
            files = replace(files, is_sealed=True)
            files.seal(b"")  # raises before anything changes if there is no key
            files.write_clear(MARKER, b"")
            return convert_files(files, self.paths())

    def decrypt(self) -> int:
        """Decrypt all files and versions and return their number. The marker is removed last."""
        with self.open_files() as files, locked(files):
            finish_pending(files)
            count = convert_files(replace(files, is_sealed=False), self.paths())
            files.remove(MARKER)
            return count

    def paths(self) -> dict[str, os.stat_result]:
        """The memories, sorted, without links and hidden files."""
        return dict(sorted(self.states().items()))

    def states(self) -> dict[str, os.stat_result]:
        """The same, unsorted, which is faster."""
        file_states = dict(markdown_files(self.root, "", 0)) if self.root.is_dir() else {}
        if len(file_states) > MAX_NOTES:
            raise InvalidInput(f"{self.root}: more than {MAX_NOTES:,} memories")
        return file_states

    def change_stamp(self, subfolders: Iterable[str]) -> tuple[object, ...]:
        """Differs after each change by Mainspring, in any process, and after any program has added,
        removed or replaced a file in the folder or these subfolders. It stays the same if a file
        was rewritten in place."""
        stamps: list[object] = []
        for place in (self.root, *(self.root / name for name in subfolders), self.root / LEDGER):
            with suppress(OSError):
                state = place.stat()
                stamps.append((place, state.st_ino, state.st_mtime_ns, state.st_size))
        return tuple(stamps)

    def read(self, path: str) -> Note:
        """Raises: NotFound, InvalidInput."""
        content = self.content(path)
        return self.verified(parse_note(path, content.decode("utf-8", "replace")), content)

    def verified(self, note: Note, content: bytes) -> Note:
        """The note as foreign if no writer of ours has recorded this content: a program, or whoever
        sent the folder, may have written it and called it a person's."""
        if self._options.is_of_person:
            return note
        is_recorded = self._recorded_hashes().get(note.path) == content_hash(content)
        return note if is_recorded else replace(note, trust="foreign")

    def _recorded_hashes(self) -> dict[str, str]:
        """The hash of the latest version of each path, if a writer of this installation made it:
        edits that were only noticed do not count, nor what somebody else's ledger says."""
        with self.open_files() as files:
            stamp = ledger_stamp(files)
            if stamp != self._recorded[0]:
                latest = {version.path: version for version in read_versions(files)}
                ours = filter(self._is_own, latest.values())
                self._recorded = stamp, {item.path: item.hash for item in ours}
        return self._recorded[1]

    def text(self, path: str) -> str:
        """A file as it is; empty if it does not exist. Raises: InvalidInput."""
        return (self._content(path) or b"").decode("utf-8", "replace")

    def content(self, path: str) -> bytes:
        """Raises: NotFound, InvalidInput."""
        content = self._content(path)
        if content is None:
            raise NotFound("memory", path)
        return content

    def _content(self, path: str) -> bytes | None:
        check_note_path(path)
        if not self.root.is_dir():
            return None
        with self.open_files() as files:
            return files.read(path)

    def save(self, note: Note, change: Change, *, expected: str | None = None) -> NoteVersion:
        """Write a memory, with its line in the index file. `expected`: the hash of the content
        that it replaces, empty if the memory is new.

        Raises: InvalidInput; MemoryChanged: the content is not the expected one.
        """
        today = self._clock().date().isoformat()
        note = replace(note, created=note.created or today, updated=today)
        version = self.write(note.path, render_note(note), change, expected=expected)
        self.finish_save(note, change)
        return version

    def finish_save(self, note: Note, change: Change) -> None:
        """The part of `save` after the file is written; repeating it changes nothing."""
        self._write_index(partial(with_index_line, note=note), change)
        for path in note.supersedes:
            if path in self.paths():
                self.forget(path, replace(change, version_id=""))

    def write(
        self, path: str, text: str, change: Change, *, expected: str | None = None
    ) -> NoteVersion:
        """Write a file as it is, with its `trust` lowered to the most that its author may claim.

        Raises: as `save`.
        """
        check_note_path(path)
        content = cap_trust(path, text, change.max_trust).encode()
        if len(content) > MAX_BYTES:
            raise InvalidInput(f"{path}: a memory may have at most {MAX_BYTES:,} bytes")
        if (why := self.refuse(text)) is not None:
            raise InvalidInput(f"{path} was not written: {why}")
        return self._change(path, content, change, expected)

    def append(self, path: str, text: str, change: Change) -> NoteVersion:
        """Add to the end of a file: a daily log. Raises: InvalidInput."""
        for _ in range(100):
            before = self._content(path) or b""
            beginning = before.decode("utf-8", "replace").rstrip("\n")
            extended = f"{beginning}\n{text}\n" if beginning else f"{text}\n"
            try:
                return self.write(path, extended, change, expected=_hash(before or None))
            except MemoryChanged:
                continue
        raise MemoryChanged(f"other writers kept changing {path}; try again")

    def forget(self, path: str, change: Change) -> NoteVersion:
        """Remove a memory; its versions stay.

        Raises: NotFound; InvalidInput.
        """
        self.content(path)
        version = self._change(path, None, change, None)
        self.remove_from_index(path, change)
        return version

    def remove_from_index(self, path: str, change: Change) -> None:
        self._write_index(partial(without_index_line, path=path), change)

    def unfinished_purges(self) -> list[str]:
        """Memories whose purge was begun and not finished."""
        if not self.root.is_dir():
            return []
        with self.open_files() as files:
            return read_purges(files)

    def history(self, path: str | None = None) -> list[NoteVersion]:
        """The versions, newest first, including edits by hand. A memory that was moved to another
        file has the versions of both."""
        if not self.root.is_dir():
            return []
        self.record_edits()
        with self.open_files() as files:
            versions = sorted(
                read_versions(files), key=lambda item: item.time
            )  # a git merge mixes their order
        if path is None:
            return versions[::-1]
        paths = {path, *(self.read(path).supersedes if self.text(path) else ())}
        return [item for item in reversed(versions) if item.path in paths]

    def find_versions(self, id_end: str) -> list[NoteVersion]:
        """The versions whose ids end with `id_end`, which is what people type."""
        return [item for item in self.history() if item.id.endswith(id_end)]

    def diff(self, version: NoteVersion) -> str:
        """The change of a version, in the format of `diff -u`."""
        before = next((item for item in self.history() if item.id == version.parent), None)
        return text_diff(version.path, self._text(before), self._text(version))

    def revert(self, version: NoteVersion, change: Change) -> NoteVersion:
        """Restore a memory as it was before a version.

        Raises: NotFound: the earlier content is not stored.
        """
        before = next((item for item in self.history() if item.id == version.parent), None)
        content = None
        if before is not None and before.operation != "deleted":
            with self.open_files() as files:
                content = version_content(files, before)
            if change.author.kind != "person" and not self._is_own(before):
                text = content.decode("utf-8", "replace")
                content = cap_trust(version.path, text, "foreign").encode()
        reverted = self._change(version.path, content, change, None)
        if version.path == INDEX_FILE:
            return reverted
        if content is None:
            self.remove_from_index(version.path, change)
        else:
            note = parse_note(version.path, content.decode())
            self._write_index(partial(with_index_line, note=note), change)
        return reverted

    def readers(self, version: NoteVersion) -> list[str]:
        """The sessions that read a version."""
        with self.open_files() as files:
            readers = read_readers(files)
        return list(
            dict.fromkeys(
                item.session_id
                for item in readers
                if (item.path, item.hash) == (version.path, version.hash)
            )
        )

    def note_readers(self, session_id: str, hashes: dict[str, str]) -> None:
        """Record that a session read memories, by path and hash."""
        now = self._clock()
        readers = [
            Reader(session_id=session_id, path=path, hash=digest, time=now)
            for path, digest in hashes.items()
        ]
        with self.open_files() as files, locked(files):
            add_readers(files, readers)

    def record_edits(self) -> list[NoteVersion]:
        """Record edits that were made outside Mainspring as versions."""
        make_folders(self.root)
        with self.open_files() as files, locked(files):
            finish_pending(files)
            latest = {item.path: item for item in read_versions(files)}
            present = self.paths()
            recorded: list[NoteVersion] = []
            for path in sorted(present.keys() | latest.keys()):
                content = files.read(path) if path in present else None
                recorded += self._record_edit(files, path, content, latest.get(path))
        return recorded

    def _record_edit(
        self, files: MemoryFiles, path: str, content: bytes | None, before: NoteVersion | None
    ) -> list[NoteVersion]:
        if (before.hash if before else "") == _hash(content):
            return []
        version = self._version(path, content, _ON_DISK, before)
        record_version(files, version, content)
        return [version]

    def _change(
        self, path: str, content: bytes | None, change: Change, expected: str | None
    ) -> NoteVersion:
        make_folders(self.root)
        with self.open_files() as files, locked(files):
            finish_pending(files)
            current = files.read(path)
            if expected is not None and _hash(current) != expected:
                raise MemoryChanged(f"{path} has changed: read it again, then try again")
            if change.author.kind != "person" and has_git_conflict(current):
                raise MemoryChanged(f"{path} has an unresolved git conflict: a person must edit it")
            before = latest_version(files, path)
            recorded = self._record_edit(files, path, current, before)
            before = recorded[0] if recorded else before
            is_confirmed = change.author.kind != "person" or self._is_own(before)
            if before is not None and _hash(current) == _hash(content) and is_confirmed:
                return before
            if self._options.quota is not None and content is not None:
                check_quota(self._options.quota, self.states(), path, len(content))
            version = self._version(path, content, change, before)
            apply_version(files, version, content)
        return version

    def _version(
        self, path: str, content: bytes | None, change: Change, before: NoteVersion | None
    ) -> NoteVersion:
        is_new = before is None or before.operation == "deleted"
        operation: Operation = "created" if is_new else "modified"
        version = NoteVersion(
            id=change.version_id or self._new_id("memver"),
            path=path,
            operation="deleted" if content is None else operation,
            time=self._clock(),
            author=change.author,
            reason=change.reason,
            hash=_hash(content),
            parent="" if before is None else before.id,
            session_id=change.session_id,
            event_ids=change.event_ids,
            trust="person" if content is None else _trust(path, content, change),
        )
        if change is _ON_DISK:
            return version
        return replace_struct(
            version, mac=self._options.provenance().note_mac(version.signed_fields)
        )

    def _is_own(self, version: NoteVersion | None) -> bool:
        """Whether a writer of this installation recorded a version."""
        if version is None or not version.mac:
            return False
        return self._options.provenance().is_own_note(version.signed_fields, version.mac)

    def _text(self, version: NoteVersion | None) -> str:
        if version is None or version.operation == "deleted":
            return ""
        with self.open_files() as files:
            return version_content(files, version).decode("utf-8", "replace")

    def _write_index(self, edit: Callable[[str], str], change: Change) -> None:
        for _ in range(100):
            before = self._content(INDEX_FILE)
            text = (before or b"").decode("utf-8", "replace")
            edited = edit(text)
            if edited == text:
                return
            try:
                index_change = replace(change, version_id="")
                self._change(INDEX_FILE, edited.encode(), index_change, _hash(before))
            except MemoryChanged:
                continue
            return


def _hash(content: bytes | None) -> str:
    return "" if content is None else content_hash(content)


def _trust(path: str, content: bytes, change: Change) -> Trust:
    if change is _ON_DISK:
        return "foreign"
    return parse_note(path, content.decode("utf-8", "replace")).trust
