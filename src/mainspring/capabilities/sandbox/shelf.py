"""What a sandbox remembers on disk: which programs it has started, and what became of them.

The marker is there before a program starts and the result before anybody hears of it, so whoever
finds neither knows that it never ran. A crash of the machine may take both: see `is_reliable`.
"""

from __future__ import annotations

import os

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_STARTED = ".started"


class Shelf:
    """Names are what files may be called; who has a key makes a name of it."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._results = os.path.join(state, "results")
        self._boot = os.path.join(state, "boot")

    def make(self) -> None:
        """Create it, if it is not there. It knows for good which boot of the machine it is from."""
        os.makedirs(self._results, mode=0o700, exist_ok=True)
        os.chmod(self._state, 0o700)
        if os.path.exists(self._boot):
            return
        _write(self._boot + ".new", boot_id(), durably=True)
        os.rename(self._boot + ".new", self._boot)
        _sync_folder(self._state)
        _sync_folder(os.path.dirname(self._state))

    def is_reliable(self) -> bool:
        """Whether what is not here was never started. Not so after the machine went down: nothing
        of this was forced to the disk, except that there is a shelf at all."""
        made_in = _read(self._boot)
        return made_in is None or (made_in != b"" and made_in == boot_id())

    def mark_started(self, name: str) -> int:
        """When that was, in nanoseconds of the file system's own clock.

        Raises:
            FileExistsError: it was started before.
        """
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        descriptor = os.open(self._path(name) + _STARTED, flags, 0o600)
        try:
            return os.fstat(descriptor).st_ctime_ns
        finally:
            os.close(descriptor)

    def put(self, name: str, result: bytes) -> None:
        path = self._path(name)
        _write(path + ".new", result)
        os.rename(path + ".new", path)

    def was_started(self, name: str) -> bool:
        return os.path.exists(self._path(name) + _STARTED)

    def get(self, name: str) -> bytes | None:
        return _read(self._path(name))

    def drop(self, name: str) -> None:
        path = self._path(name)
        for each in (path, path + ".new", path + _STARTED):  # the marker last
            try:
                os.unlink(each)
            except FileNotFoundError:
                continue

    def _path(self, name: str) -> str:
        if not name.isalnum():
            raise ValueError(f"not a name: {name!r}")
        return os.path.join(self._results, name)


def boot_id() -> bytes:
    """Empty where the system has none."""
    return _read(_BOOT_ID) or b""


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _write(path: str, content: bytes, *, durably: bool = False) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        if durably:
            file.flush()
            os.fsync(descriptor)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
