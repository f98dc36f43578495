"""The transcript of a session as files for its hooks, kept up to date while the session runs.

`SESSION.jsonl` has the main thread, `SESSION/subagents/agent-THREAD.jsonl` each subagent. The files
are derived from the log alone. A new process therefore compares them with the log once, keeps the
part that matches and continues at its end; a line that a crash truncated is rewritten. Every byte
has a fixed position: two processes that write the same session write the same bytes.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from mainspring.core.envelope import GENESIS, Event
from mainspring.core.errors import SessionNotFound, StoreFailed
from mainspring.log.lru_cache import LruCache
from mainspring.log.session_log import SessionLog
from mainspring.log.task_groups import run_in_background
from mainspring.runtime.export_sessions.claude_code_transcript import ClaudeCodeLines
from mainspring.runtime.export_sessions.conversation_fold import ConversationFold

_PAGE = 500  # events read at once
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NAME = re.compile(r"[A-Za-z0-9_-]{1,120}")


@dataclass(slots=True)
class _FileProgress:
    """How much of a file is known to match the log."""

    size: int = 0
    is_compared: bool = False
    """Whether everything that an earlier process wrote has been compared."""


class TranscriptFiles:
    """The files of one session; one instance for all of its threads in this process."""

    def __init__(
        self,
        log: SessionLog,
        folder: Path,
        *,
        session_id: str,
        main_thread: str,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._log = log
        self._folder = folder
        self._session_id = session_id
        self._main_thread = main_thread
        self._warn = warn
        self._lock = anyio.Lock()
        self._is_broken = False
        self._start_over()

    def _start_over(self) -> None:
        self._conversation = ConversationFold()
        self._lines = ClaudeCodeLines(session_name=self._session_id, main_thread=self._main_thread)
        self._seq, self._digest = 0, GENESIS
        self._files: dict[str, _FileProgress] = {}

    def path(self, thread_id: str) -> str:
        """The file of a thread; empty if it could not be written."""
        if self._is_broken:
            return ""
        return str(self._folder.joinpath(*self._place(thread_id)))

    async def update(self, staged: Sequence[Event] = ()) -> None:
        """Write the events that the files lack. `staged` are events that are about to be appended
        to the log; if that fails, their lines are replaced."""
        async with self._lock:
            try:
                await self._read_log()
                new = [event for event in staged if event.seq > self._seq]
                if new and (new[0].seq, new[0].prev) == (self._seq + 1, self._digest):
                    await self._add_events(new)
                if not all(progress.is_compared for progress in self._files.values()):
                    await to_thread.run_sync(self._truncate_uncompared)
            except (OSError, StoreFailed, SessionNotFound) as error:
                self._start_over()
                if not self._is_broken:
                    self._warn(f"hooks get no transcript: {self._folder}: {error}")
                self._is_broken = True

    async def _read_log(self) -> None:
        is_first = True
        while page := await self._log.read(self._session_id, after=self._seq, limit=_PAGE):
            if is_first and page[0].prev != self._digest:
                self._start_over()  # an event that was staged was never appended
            else:
                await self._add_events(page)
            is_first = False

    @asynccontextmanager
    async def keep_updated(self) -> AsyncGenerator[None, None]:
        """Keep the files up to date while the block runs, whether or not a hook runs."""
        async with run_in_background(self._follow):
            yield
        await self.update()

    async def _follow(self) -> None:
        watch = self._log.store.watch(self._session_id)
        while not self._is_broken:
            await self.update()
            await watch.wait()

    async def _add_events(self, events: Sequence[Event]) -> None:
        text: dict[str, list[bytes]] = {}
        for event in events:
            for entry in self._conversation.take(event):
                for line in self._lines.write(entry, self._conversation, {}):
                    text.setdefault(line.thread_id, []).extend((line.json, b"\n"))
        self._seq, self._digest = events[-1].seq, events[-1].digest()
        if text:
            joined = {thread_id: b"".join(parts) for thread_id, parts in text.items()}
            await to_thread.run_sync(self._write, joined)

    def _write(self, text: dict[str, bytes]) -> None:
        for thread_id, content in text.items():
            progress = self._files.setdefault(thread_id, _FileProgress())
            with self._open(thread_id) as file:
                if not progress.is_compared:
                    present = os.pread(file, len(content), progress.size)
                    count = len(present) if content.startswith(present) else 0
                    if count < len(present):
                        os.ftruncate(file, progress.size)
                    progress.is_compared = count < len(content)
                    progress.size, content = progress.size + count, content[count:]
                while content:
                    count = os.pwrite(file, content, progress.size)
                    progress.size, content = progress.size + count, content[count:]

    def _truncate_uncompared(self) -> None:
        """Truncate files where an earlier process wrote more than the log has."""
        for thread_id, progress in self._files.items():
            if not progress.is_compared:
                with self._open(thread_id) as file:
                    if os.fstat(file).st_size > progress.size:
                        os.ftruncate(file, progress.size)
                progress.is_compared = True

    def _place(self, thread_id: str) -> tuple[str, ...]:
        if thread_id == self._main_thread:
            return (f"{self._session_id}.jsonl",)
        return (self._session_id, "subagents", f"agent-{thread_id}.jsonl")

    @contextmanager
    def _open(self, thread_id: str) -> Generator[int, None, None]:
        """Open a file that only this user owns, without following links.

        Raises: OSError.
        """
        if not (_NAME.fullmatch(self._session_id) and _NAME.fullmatch(thread_id)):
            raise OSError(errno.EINVAL, "not a name for a file", self._session_id)
        *folders, name = self._place(thread_id)
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        parent = os.open(self._folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for folder in (self._folder.name, *folders):
            parent = _inner_folder(parent, folder)
        try:
            file = os.open(name, _FILE, 0o600, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            _check_ownership(file, is_folder=False)
            yield file
        finally:
            os.close(file)


def _inner_folder(parent: int, name: str) -> int:
    """Open or create a folder below an open one, and close that one."""
    try:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        inner = os.open(name, _FOLDER, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        _check_ownership(inner, is_folder=True)
    except OSError:
        os.close(inner)
        raise
    return inner


def _check_ownership(opened: int, *, is_folder: bool) -> None:
    """Raises: OSError: another user owns it or could have created it."""
    state = os.fstat(opened)
    is_right_kind = stat.S_ISDIR(state.st_mode) if is_folder else stat.S_ISREG(state.st_mode)
    is_single = is_folder or state.st_nlink == 1
    if not (is_right_kind and is_single and state.st_uid == os.geteuid()):
        raise OSError(errno.EPERM, "is not a file or folder that only this user owns")
    if state.st_mode & 0o077:
        os.fchmod(opened, 0o700 if is_folder else 0o600)


def open_transcript(
    transcripts: LruCache[str, TranscriptFiles],
    log: SessionLog,
    folder: Path,
    *,
    session_id: str,
    main_thread: str,
    warn: Callable[[str], None],
) -> TranscriptFiles:
    """The transcript of an earlier run in this process, which need not compare its files again, or
    a new one."""
    if (cached := transcripts.get(session_id)) is not None:
        return cached
    transcript = TranscriptFiles(
        log, folder, session_id=session_id, main_thread=main_thread, warn=warn
    )
    transcripts.put(session_id, transcript)
    return transcript
