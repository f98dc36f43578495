"""Programs on the host that must not be left behind by the work that started them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from anyio.abc import Process

_REAP_SECONDS = 5.0  # for a killed program to disappear; then it is not waited for


@asynccontextmanager
async def start_process(  # parameters: as those of the function that starts it
    command: str | Sequence[str],
    *,
    stdin: int | IO[bytes] = DEVNULL,
    stdout: int | IO[bytes] = PIPE,
    stderr: int | IO[bytes] = DEVNULL,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> AsyncGenerator[Process]:
    """A program in a process group and session of its own; a text is run by the shell. If the block
    is left before the program has ended, by cancellation too, it is killed with all its children.

    Raises: OSError: it cannot be started. ValueError: it cannot be passed on.
    """
    process = None
    with anyio.CancelScope(shield=True):  # a cancelled start leaves a process unreaped
        process = await anyio.open_process(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    assert process is not None
    is_ended = False
    try:
        yield process
        is_ended = process.returncode is not None
    finally:
        if not is_ended:
            signal_group(process, signal.SIGKILL)
        with anyio.move_on_after(_REAP_SECONDS, shield=True):
            await process.aclose()


def signal_group(process: Process, number: signal.Signals) -> None:
    """Send a signal to a program and all its children."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
