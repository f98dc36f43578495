"""The parent's side of the zygote: start children, hear them, kill them, see them off."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from tests.crash.wire import LINES, Dying, Line, Order, encoded

PATIENCE_SECONDS = 60.0


class Child:
    """A running process and what it has reported so far."""

    def __init__(self, pid: int, reports: int, kill: Kill | None) -> None:
        self.pid = pid
        self.lines: list[Line] = []
        self.ended = False
        self.killed = False
        self.kill = kill
        self._reports = reports
        self._rest = b""
        self._due: float | None = None

    def fileno(self) -> int:
        return self._reports

    def hear(self) -> None:
        heard = os.read(self._reports, 1 << 20)
        if not heard:
            os.close(self._reports)
            self.ended = True
        *whole, self._rest = (self._rest + heard).split(b"\n")
        self.lines += map(LINES.decode, whole)

    def seconds_to_live(self, now: float) -> float:
        if self._due is None and self.kill is not None:
            delay = self.kill(self)
            self._due = None if delay is None else now + delay
        return PATIENCE_SECONDS if self._due is None else self._due - now

    @property
    def was_killed(self) -> bool:
        return self.killed or isinstance(self.lines[-1] if self.lines else None, Dying)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        self.killed = self.killed or number is signal.SIGKILL


Kill: TypeAlias = Callable[[Child], float | None]
"""Looks at what a child has reported: `None` lets it live, else it has so many seconds left."""


class Zygote:
    def __init__(self, process: subprocess.Popen[bytes], wire: socket.socket) -> None:
        self._process = process
        self._wire = wire
        self._living: set[Child] = set()

    def start(self, order: Order, kill: Kill | None = None) -> Child:
        reading, writing = os.pipe()
        try:
            message = encoded(order)
            sent = socket.send_fds(self._wire, [message], [writing])
            self._wire.sendall(message[sent:])
            child = Child(self._answer(), reading, kill)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._living.add(child)
        return child

    def wait_until_stopped(self, child: Child) -> None:
        self._wire.sendall(b"-%d\n" % child.pid)
        self._answer()

    def bury(self, child: Child) -> None:
        """Wait for a child that has ended, or is about to."""
        if child in self._living:
            self._living.remove(child)
            self._wire.sendall(b"%d\n" % child.pid)
            self._answer()

    def _answer(self) -> int:
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._wire.recv(64)
            if not part:
                raise EOFError("the zygote has died")
            answer += part
        return int(answer)

    def close(self) -> None:
        for child in tuple(self._living):
            child.signal(signal.SIGKILL)
            self.bury(child)
            if not child.ended:
                os.close(child.fileno())
        self._wire.close()
        self._process.wait(PATIENCE_SECONDS)


@contextmanager
def zygote(url: str, openers: Sequence[str]) -> Generator[Zygote]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.crash.zygote", str(theirs.fileno()), url]
    with theirs:
        process = subprocess.Popen(
            [*command, *openers], cwd=Path(__file__).parents[2], pass_fds=[theirs.fileno()]
        )
    parent = Zygote(process, ours)
    try:
        yield parent
    finally:
        parent.close()


def listen(
    zygote: Zygote, children: Sequence[Child], until: Callable[[], bool] = lambda: False
) -> None:
    """Hear children, and kill each when its time comes, until all have ended or `until` holds.

    Raises:
        TimeoutError: nothing was heard for too long.
    """
    while living := [child for child in children if not child.ended]:
        if until():
            return
        now = time.monotonic()
        patience = PATIENCE_SECONDS
        for child in living:
            remaining = PATIENCE_SECONDS if child.killed else child.seconds_to_live(now)
            if remaining <= 0:
                child.signal(signal.SIGKILL)
            patience = min(patience, max(remaining, 0.0))
        ready, _, _ = select.select(living, [], [], patience)
        for child in ready:
            child.hear()
            if child.ended:
                zygote.bury(child)
        if not ready and patience == PATIENCE_SECONDS:
            raise TimeoutError(f"no child has said anything for {PATIENCE_SECONDS:.0f} s")
