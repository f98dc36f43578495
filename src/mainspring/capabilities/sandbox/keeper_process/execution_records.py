"""A sandbox's records on disk: which programs it started, and their results.

The start is recorded before a program starts, and its result before any client gets it. So a
program with neither never ran. A crash of the machine may lose both: see `is_reliable`.
"""

from __future__ import annotations

import errno
import os

from mainspring.files.openat import OpenDescriptor

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_UNTIDY_BYTES = 1024 * 1024  # of records that are no longer needed; then the file is written anew


class ExecutionRecords:
    """Records by name, which must be a valid file name; callers derive it from a key. Not
    thread-safe.

    Starts are lines in one file, because appending a line takes a fraction of the time of creating
    a file.
    """

    def __init__(self, state: str) -> None:
        self._state = state
        self._results = os.path.join(state, "results")
        self._starts = os.path.join(state, "starts")
        self._boot = os.path.join(state, "boot")
        self._stamp = os.path.join(state, "stamp")
        self._started: set[bytes] = set()
        self._read_to = 0

    def make(self) -> None:
        """Create the records if they do not exist, with the id of the current boot."""
        os.makedirs(self._results, mode=0o700, exist_ok=True)
        os.chmod(self._state, 0o700)
        if os.path.exists(self._boot):
            return
        _write(self._boot + ".new", boot_id(), durably=True)
        os.rename(self._boot + ".new", self._boot)
        _sync_folder(self._state)
        _sync_folder(os.path.dirname(self._state))

    def is_reliable(self) -> bool:
        """Whether a program without a record was never started. False after the machine has
        rebooted: records are not synced to disk, except for their creation."""
        made_in = _read(self._boot)
        return made_in is None or (made_in != b"" and made_in == boot_id())

    def note_stamp(self, stamp: bytes) -> None:
        """Record which code started the keeper, and how strict its sandbox is."""
        _write(self._stamp, stamp)

    def stamp(self) -> str:
        """The recorded stamp; empty for a keeper of a version without stamps."""
        return (_read(self._stamp) or b"").decode("ascii", "replace")

    def mark_started(self, name: str) -> int:
        """Record a start; returns its time in nanoseconds of the file system's clock."""
        return self._note(b"+", name)

    def put(self, name: str, result: bytes) -> None:
        path = self._path(name)
        _write(path + ".new", result)
        os.rename(path + ".new", path)

    def tidy(self) -> None:
        """Compact the file of starts. Only for a new keeper, when no start can be recorded
        meanwhile."""
        self._catch_up()
        lines = b"".join(b"+%s\n" % name for name in sorted(self._started))
        if self._read_to > len(lines) + _UNTIDY_BYTES:
            _write(self._starts + ".new", lines)
            os.rename(self._starts + ".new", self._starts)
            self._read_to = len(lines)

    def was_started(self, name: str) -> bool:
        self._catch_up()
        return name.encode("ascii") in self._started

    def _catch_up(self) -> None:
        content = _read(self._starts, self._read_to) or b""
        whole = content.rfind(b"\n") + 1
        self._read_to += whole
        for line in content[:whole].split(b"\n"):
            if line[:1] == b"+":
                self._started.add(line[1:])
            elif line[:1] == b"-":
                self._started.discard(line[1:])

    def get(self, name: str) -> bytes | None:
        return _read(self._path(name))

    def drop(self, name: str) -> None:
        path = self._path(name)
        for item in (path, path + ".new"):
            try:
                os.unlink(item)
            except FileNotFoundError:
                continue
        if self.was_started(name):
            self._note(b"-", name)

    def _path(self, name: str) -> str:
        if not name.isalnum():
            raise ValueError(f"not a name: {name!r}")
        return os.path.join(self._results, name)

    def _note(self, sign: bytes, name: str) -> int:
        # a full disk may have cut off the previous line, so this one begins with a line break
        line = b"\n" + sign + name.encode("ascii") + b"\n"
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
        with OpenDescriptor(os.open(self._starts, flags, 0o600)) as descriptor:
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._starts)
            return os.fstat(descriptor).st_mtime_ns


def boot_id() -> bytes:
    """The id of this boot of the machine; empty where the system has none."""
    return _read(_BOOT_ID) or b""


def _read(path: str, begin: int = 0) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            if begin:
                file.seek(begin)
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
    with OpenDescriptor(os.open(path, os.O_RDONLY)) as descriptor:
        os.fsync(descriptor)
