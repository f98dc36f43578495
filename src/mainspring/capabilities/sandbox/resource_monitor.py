"""Watches resources of a program that no rlimit bounds: the memory, processes and disk space of all
its processes together. The keeper stops the program."""

from __future__ import annotations

import os
import stat
import time
from itertools import chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512  # bytes: the unit of st_blocks (stat(2))
_OWN_PROCESSES = 8
"""The launcher, the agent, and their short-lived children."""
_SLICE_SECONDS = 0.01  # of walking a tree at once, so that the keeper stays responsive
_PAUSE_SECONDS = 0.05  # at least, between two checks; half doubles their cost while files are few
_REST = 10
"""A check is followed by a pause of this many times its duration."""


class Quota:
    def __init__(self, memory_bytes: int, processes: int, disk_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.processes = processes
        self.disk_bytes = disk_bytes


class ResourceMonitor:
    """Monitors one program: all processes below `root`, and new data in `workspace`."""

    def __init__(
        self, root: int, quota: Quota, workspace: str, *, hidden: set[str], since_ns: int
    ) -> None:
        self._root = root
        self._quota = quota
        self._tasks_before = _tasks()
        self._not_before = time.monotonic() + _PAUSE_SECONDS
        self._disk = _Disk(workspace, hidden, since_ns, quota.disk_bytes)

    def breach(self) -> str | None:
        """The resource that exceeds its limit, if any. Most calls return without a check."""
        started_at = time.monotonic()
        is_crowded = _tasks() - self._tasks_before > self._quota.processes
        if started_at < self._not_before and not is_crowded:
            return None
        family = _descendants(self._root)
        reason = self._breach(family)
        end = time.monotonic()
        self._not_before = end + max(_PAUSE_SECONDS, _REST * (end - started_at))
        return reason

    def _breach(self, family: dict[int, int]) -> str | None:
        if sum(family.values()) > self._quota.processes + _OWN_PROCESSES:
            return "processes"
        max_bytes = self._quota.memory_bytes
        # the first sum is fast, but counts shared pages once for each process
        if (
            sum(map(_resident_bytes, family)) > max_bytes
            and sum(map(_proportional_bytes, family)) > max_bytes
        ):
            return "memory"
        return self._disk.breach(list(family))


class _Disk:
    """Low free space of the file system triggers a check; the files show whether this program used
    it."""

    def __init__(self, workspace: str, hidden: set[str], since_ns: int, max_bytes: int) -> None:
        self._workspace = workspace
        self._hidden = hidden
        self._since_ns = since_ns
        self._max_bytes = max_bytes
        self._least_used = _used_bytes(workspace)
        self._scan: Iterator[int] | None = None
        self._scanned_bytes = 0
        self._spent = 0.0
        self._not_before = 0.0

    def breach(self, processes: list[int]) -> str | None:
        now = time.monotonic()
        if self._scan is None:
            used_bytes = _used_bytes(self._workspace)
            self._least_used = min(self._least_used, used_bytes)  # others may free space
            if now < self._not_before or used_bytes - self._least_used <= self._max_bytes // 2:
                return None
            self._scan = chain(
                [_unlinked_bytes(processes)],
                _changed_sizes(self._workspace, self._hidden, self._since_ns),
            )
            self._scanned_bytes, self._spent = 0, 0.0
        for size in self._scan:
            self._scanned_bytes += size
            if self._scanned_bytes > self._max_bytes:
                return "disk"
            if time.monotonic() - now > _SLICE_SECONDS:  # the keeper has other work
                self._spent += time.monotonic() - now
                return None
        self._scan = None
        self._not_before = time.monotonic() + _REST * (self._spent + _SLICE_SECONDS)
        return None


def _tasks() -> int:
    """The number of tasks on the whole machine, which the kernel gives cheaply."""
    fields = (_read("/proc/loadavg") or b"").split()
    return int(fields[3].split(b"/")[1]) if fields else 0


def _used_bytes(path: str) -> int:
    file_system = os.statvfs(path)
    return (file_system.f_blocks - file_system.f_bfree) * file_system.f_frsize


def _changed_sizes(folder: str, hidden: set[str], since_ns: int) -> Iterator[int]:
    """Sizes of readable entries that were changed since then; 0 for the others."""
    pending = [folder]
    while pending:
        try:
            entries = os.scandir(pending.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                if entry.path in hidden:
                    continue
                try:
                    state = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(state.st_mode):
                    pending.append(entry.path)
                yield state.st_blocks * _BLOCK if state.st_ctime_ns >= since_ns else 0


def _unlinked_bytes(processes: list[int]) -> int:
    """The size of open files that were unlinked, including memfds."""
    sizes: dict[tuple[int, int], int] = {}
    for process in processes:
        for path in _descriptors(process):
            try:
                state = os.stat(path)
            except OSError:
                continue
            if state.st_nlink == 0 and stat.S_ISREG(state.st_mode):
                sizes[state.st_dev, state.st_ino] = state.st_blocks * _BLOCK
    return sum(sizes.values())


def _descriptors(process: int) -> list[str]:
    folder = f"/proc/{process}/fd"
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except OSError:
        return []


def _descendants(root: int) -> dict[int, int]:
    """Every process below `root`, with the number of its threads."""
    threads: dict[int, int] = {}
    pending = [root]
    while pending:
        process = pending.pop()
        tasks = f"/proc/{process}/task"
        try:
            names = os.listdir(tasks)
        except OSError:
            continue
        threads[process] = len(names)
        for name in names:
            children = _read(f"{tasks}/{name}/children") or b""
            pending += [int(child) for child in children.split()]
    return threads


def _resident_bytes(process: int) -> int:
    fields = (_read(f"/proc/{process}/statm") or b"").split()
    return int(fields[1]) * _PAGE if fields else 0


def _proportional_bytes(process: int) -> int:
    for line in (_read(f"/proc/{process}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return _resident_bytes(process)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None


def descendants_of(root: int) -> list[int]:
    """The living processes below `root`, without `root` itself."""
    return [
        process for process in _descendants(root) if process != root and _resident_bytes(process)
    ]
