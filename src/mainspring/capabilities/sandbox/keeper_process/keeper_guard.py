"""The keeper's part in the guard of protected paths: it holds the guard's lock while a program runs
or waits, and has the guard ended if no client is left to do it. Imports only fast modules.
"""

from __future__ import annotations

import fcntl
import os

from mainspring.capabilities.sandbox.wire import GUARD_LOCK, GUARD_RECORD


class KeeperGuard:
    """`folder`: where the session's guard is; empty if it has none."""

    def __init__(self, folder: str, command: list[str]) -> None:
        self._folder = folder
        self._command = command
        """Ends the guard of a killed process."""
        self._lock: int | None = None

    def hold(self) -> None:
        """A program has been asked for."""
        if self._folder and self._lock is None:
            path = os.path.join(self._folder, GUARD_LOCK)
            self._lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def release(self) -> None:
        """No program runs or waits."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def end_if_abandoned(self) -> None:
        """No client is left: have the guard ended, unless somebody else still does it. Does not
        wait for that."""
        if not self._folder or not os.path.exists(os.path.join(self._folder, GUARD_RECORD)):
            return
        lock = os.open(os.path.join(self._folder, GUARD_LOCK), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        finally:
            os.close(lock)
        os.posix_spawn(self._command[0], self._command, {})
