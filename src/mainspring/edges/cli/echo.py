"""The terminal's echo while an agent replies: keys typed ahead are kept and not shown yet.

The terminal stays in its line mode, so Ctrl-C works, and what was typed is shown by the prompt that
reads it next.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

_LOCAL_MODES = 3
"""Index of the local modes in what `tcgetattr` returns."""


@contextmanager
def echo_paused() -> Generator[Callable[[], None], None, None]:
    """Turn the echo off inside; the function turns it on again early, before a process may die."""
    if not _owns_terminal():
        yield _do_nothing
        return
    before = termios.tcgetattr(sys.stdin)

    def resume() -> None:
        if _owns_terminal():
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    def end(signum: int, _frame: FrameType | None) -> None:
        resume()
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    paused = [*before]
    paused[_LOCAL_MODES] &= ~termios.ECHO
    is_unhandled = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_unhandled:
        signal.signal(signal.SIGTERM, end)
    try:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, paused)
        yield resume
    finally:
        resume()
        if is_unhandled:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _owns_terminal() -> bool:
    """Whether this process may change its terminal: the system stops one in the background."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no controlling terminal, or standard input is closed
        return False


def _do_nothing() -> None:
    pass
