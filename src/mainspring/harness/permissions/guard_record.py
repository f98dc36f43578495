"""The record of a guard of protected paths: what was there before programs began to run. It is
written before the first one starts and removed after the last one has ended, so that it outlives a
killed process. Everything that runs a program, or waits for one, holds a shared lock beside it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

RECORD, LOCK = "guard.json", "guard.lock"
"""The keeper of a sandbox uses them as well (`keeper_process/keeper_guard.py`)."""


class GuardRecord(Struct, frozen=True, kw_only=True):
    workspace: str
    watched: tuple[str, ...]
    trees: tuple[str, ...]
    folders: tuple[str, ...]
    known: dict[str, str]
    """The protected paths that existed."""
    own: dict[str, str] = field(default_factory=dict[str, str])
    """What our own process has written since, with its hash; empty if it does not matter."""
    lock: str = ""
    """Which lock file was beside it. A record that came from somewhere else, such as with a clone,
    names files to set aside: nobody can know the lock that this machine made for it."""


def _identity(lock: os.stat_result) -> str:
    """A copy of the file has another one: its time is the kernel's, in nanoseconds."""
    return f"{lock.st_ino}:{lock.st_ctime_ns}"


_RECORDS = msgspec.json.Decoder(GuardRecord)


@dataclass(slots=True)
class GuardFiles:
    """The record of one session's guard, in the private folder of its sandbox."""

    state: Path
    _lock: int | None = None

    def enter(self) -> None:
        """Hold the shared lock."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._lock = os.open(self.state / LOCK, flags, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def is_alone(self) -> bool:
        """Whether nobody else holds the lock; then nobody gets it before `leave`."""
        if self._lock is None:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._lock, fcntl.LOCK_SH)  # the failed attempt may have released it
            return False
        return True

    def leave(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> GuardRecord | None:
        """`None`: there is none, or it was not written here."""
        try:
            record = _RECORDS.decode((self.state / RECORD).read_bytes())
            lock = (self.state / LOCK).lstat()
        except (FileNotFoundError, msgspec.MsgspecError, RecursionError):
            return None
        return record if record.lock == _identity(lock) else None

    def write(self, record: GuardRecord) -> None:
        """While the lock is held."""
        assert self._lock is not None
        record = replace(record, lock=_identity(os.fstat(self._lock)))
        new = self.state / f"{RECORD}.new"
        new.unlink(missing_ok=True)  # a link is not followed
        new.write_bytes(msgspec.json.encode(record))
        new.replace(self.state / RECORD)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            (self.state / RECORD).unlink()
