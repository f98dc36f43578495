"""Runs a host program such as git, confined by Landlock and memory limits, on files that a session
may be changing at the same time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen, TimeoutExpired

import anyio
from anyio import CancelScope, to_thread

from mainspring.capabilities.sandbox.backends.landlock_rules import (
    CHANGE,
    READ,
    USE,
    enforce,
    paths_ruleset,
)
from mainspring.files.openat import open_absolute

if sys.platform == "linux":
    from resource import RLIMIT_DATA, prlimit

_SECONDS = 300.0  # for git on a session's files
_MAX_MEMORY = 2 << 30  # bytes; git needs memory for the largest file and the window of a pack
_SYSTEM_PATHS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/passwd", "/etc/nsswitch.conf", "/etc/localtime"),
    *("/etc/alternatives", "/dev/urandom"),
)


async def run_confined(
    command: Sequence[str],
    at: Path,
    environment: Mapping[str, str],
    places: Sequence[Path] = (),
    stdin: bytes = b"",
) -> CompletedProcess[bytes]:
    """Run a command. With `places`, it may read and change only these besides the system's own
    files; without them, it is not confined.

    Raises:
        OSError: it could not be started, or one of its folders has been replaced by a link.
        TimeoutError: it took too long and was killed.
    """
    process = await to_thread.run_sync(_start, command, at, environment, places)
    has_begun = threading.Event()

    def communicate() -> tuple[bytes, bytes]:
        has_begun.set()
        with process:
            try:
                return process.communicate(stdin, _SECONDS)
            except TimeoutExpired as error:
                process.kill()
                raise TimeoutError from error

    try:
        stdout, stderr = await to_thread.run_sync(communicate, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        process.kill()
        with CancelScope(shield=True):  # the thread closes the pipes, if it has begun
            closes_pipes = not has_begun.is_set()
            await to_thread.run_sync(partial(_reap, process, closes_pipes=closes_pipes))
        raise
    return CompletedProcess(list(command), process.returncode, stdout, stderr)


def _reap(process: Popen[bytes], *, closes_pipes: bool) -> None:
    with process if closes_pipes else nullcontext():
        process.wait()


def _start(
    command: Sequence[str], at: Path, environment: Mapping[str, str], places: Sequence[Path]
) -> Popen[bytes]:
    started: list[Popen[bytes]] = []
    failed: list[OSError] = []
    ruleset = _ruleset(places) if places else None

    def start() -> None:
        try:
            if ruleset is not None:
                enforce(ruleset)
            started.append(
                Popen(command, cwd=at, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE)
            )
            _limit(started[0].pid)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=start)  # a new thread: Landlock cannot be undone
    thread.start()
    thread.join()
    if ruleset is not None:
        os.close(ruleset)
    if failed:
        for process in started:  # its memory could not be limited
            process.kill()
            _reap(process, closes_pipes=True)
        raise failed[0]
    return started[0]


def _limit(process: int) -> None:
    """Limit its memory: where it reads a whole file, there may be a link to an endless device."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):
            prlimit(process, RLIMIT_DATA, (_MAX_MEMORY, _MAX_MEMORY))


def _ruleset(places: Sequence[Path]) -> int | None:
    allowed: list[tuple[int, int]] = []
    try:
        for path in places:
            with suppress(FileNotFoundError):
                allowed.append((open_absolute(str(path)), CHANGE))
        for path in _SYSTEM_PATHS:
            with suppress(FileNotFoundError):
                allowed.append((os.open(path, os.O_PATH | os.O_CLOEXEC), READ))
        allowed.append((os.open(os.devnull, os.O_PATH | os.O_CLOEXEC), USE))
        return paths_ruleset(allowed)
    finally:
        for place, _ in allowed:
            os.close(place)
