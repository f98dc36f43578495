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


_RECORDS = msgspec.json.Decoder(GuardRecord)


@dataclass(slots=True)
class GuardFiles:
    """The record of one session's guard, in the private folder of its sandbox."""

    state: Path
    _lock: int | None = None

    def enter(self) -> None:
        """Hold the shared lock."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self.state / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
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
        try:
            return _RECORDS.decode((self.state / RECORD).read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError, RecursionError):
            return None

    def write(self, record: GuardRecord) -> None:
        new = self.state / f"{RECORD}.new"
        new.write_bytes(msgspec.json.encode(record))
        new.replace(self.state / RECORD)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            (self.state / RECORD).unlink()
