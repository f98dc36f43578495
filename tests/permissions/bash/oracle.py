"""What bash really runs: generated texts of stub commands, executed, each stub noting its words."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mainspring.harness.permissions.bash import Command, Word

STUBS = tuple(f"c{number}" for number in range(1, 10))
# Real programs that only run stubs here.
WRAPPERS = ("env", "timeout", "nice", "nohup", "stdbuf", "xargs", "bash", "sh", "find", "cat")
# Each stub has a file of its own, as many may run at once. It says something, so that
# substitutions of it are not empty; every second one fails.
_STUB = """#!/bin/sh
{{ printf '%s\\037' "${{0##*/}}" "$@"; printf '\\036'; }} >> "$STUB_LOG/$$"
echo said
exit {code}
"""


class Stage:
    """An empty folder, and a PATH of nothing but stubs."""

    def __init__(self, root: Path) -> None:
        self._bin, self._log, self._work = root / "bin", root / "log", root / "work"
        self._bin.mkdir()
        for number, name in enumerate(STUBS, start=1):
            stub = self._bin / name
            stub.write_text(_STUB.format(code=(number + 1) % 2))
            stub.chmod(0o755)
        for name in WRAPPERS:
            if found := shutil.which(name):
                (self._bin / name).symlink_to(found)
        self._bash = shutil.which("bash") or "bash"

    def run(self, text: str) -> list[tuple[str, ...]]:
        """The words of every stub that ran."""
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir()
        shutil.rmtree(self._log, ignore_errors=True)
        self._log.mkdir()
        process = subprocess.Popen(
            [self._bash, "--norc", "--noprofile", "-c", text],
            cwd=self._work,
            env={
                "PATH": str(self._bin),
                "HOME": str(self._work),
                "STUB_LOG": str(self._log),
                "FUNCNEST": "9",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        notes = [item.read_text(errors="surrogateescape") for item in self._log.iterdir()]
        ran = [item for note in notes for item in note.split("\x1e")[:-1]]
        return [tuple(item.split("\x1f")[:-1]) for item in ran]


def accounted(ran: tuple[str, ...], commands: Sequence[Command]) -> bool:
    """Whether what ran is one of `commands`."""
    return any(_fits(ran, command.words) for command in commands)


def _fits(ran: tuple[str, ...], words: tuple[Word, ...]) -> bool:
    if not words:
        return not ran
    head, rest = words[0], words[1:]
    if head.many:
        return any(_fits(ran[count:], rest) for count in range(len(ran) + 1))
    if not ran or (head.value is not None and head.value != ran[0]):
        return False
    return _fits(ran[1:], rest)
