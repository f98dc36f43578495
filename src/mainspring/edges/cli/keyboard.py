"""What somebody types: lines with history, put together to one message where they ask for it."""

from __future__ import annotations

import os
import readline
import signal
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

_MOST = 1000
_FENCE = "```"


class Keyboard:
    """Reads from standard input. The terminal belongs to it while it reads, Ctrl-C included."""

    def __init__(self, history: Path | None, *, colour: bool) -> None:
        self._history = history
        self._is_terminal = sys.stdin.isatty()
        self._colour = colour and self._is_terminal

    def open(self) -> None:
        if not self._is_terminal:
            return
        readline.set_history_length(_MOST)
        if "libedit" not in (readline.__doc__ or ""):
            readline.parse_and_bind(r'"\e\C-m": "\C-v\C-j"')  # Alt-Enter: a new line
            readline.parse_and_bind("set enable-bracketed-paste on")
        if self._history is not None:
            with suppress(OSError):
                readline.read_history_file(self._history)

    def complete(self, names: Callable[[], Sequence[str]]) -> None:
        """Tab completes the name that a message begins with; elsewhere it is a tab."""
        if not self._is_terminal:
            return

        def found(text: str, state: int) -> str | None:
            is_name = readline.get_begidx() == 0 and text.startswith("/")
            matches = [f"{each} " for each in names() if each.startswith(text)]
            offered = matches if is_name else [f"{text}\t"]
            return offered[state] if state < len(offered) else None

        readline.set_completer(found)
        readline.set_completer_delims(" \t\n")
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def close(self) -> None:
        if not self._is_terminal or self._history is None:
            return
        with suppress(OSError):  # a history that cannot be kept is no reason to fail
            os.close(os.open(self._history, os.O_WRONLY | os.O_CREAT, 0o600))
            readline.write_history_file(self._history)

    def forget(self) -> None:
        """What was typed before a question was asked is no answer to it."""
        if self._is_terminal:
            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def message(self) -> str:
        """One message. A line goes on after a backslash at its end, and in an open code fence.

        Raises:
            EOFError: there will be none. KeyboardInterrupt: it was given up.
        """
        lines = [self.line("> ")]
        while _goes_on(lines):
            if lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
            lines.append(self.line("… "))
        return "\n".join(lines)

    def line(self, prompt: str) -> str:
        """Raises: EOFError, KeyboardInterrupt: as `message` does."""
        if not self._is_terminal:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            # what takes no room on the screen is marked, or the cursor goes astray
            return input(f"\x01\x1b[1;32m\x02{prompt}\x01\x1b[0m\x02" if self._colour else prompt)
        finally:
            signal.signal(signal.SIGINT, before)


def _goes_on(lines: list[str]) -> bool:
    fences = sum(line.lstrip().startswith(_FENCE) for line in "\n".join(lines).split("\n"))
    return lines[-1].endswith("\\") or fences % 2 == 1
