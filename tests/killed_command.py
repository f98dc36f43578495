"""Runs `mainspring` in this process and ends it by SIGKILL at the n-th step of a function's work.

A step is a call or a return, of Python or of C, in a frame of the product: between any two system
calls there is at least one. `python -m tests.killed_command FUNCTION STEP ARGUMENTS...`; with step
0 nothing is killed, and the number of steps is written to standard error.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

from mainspring.edges.cli.main import main

_PRODUCT = f"{os.sep}mainspring{os.sep}"


class Killer:
    def __init__(self, function: str, step: int) -> None:
        self._function = function
        self._step = step
        self._is_begun = False
        self._steps = itertools.count(1)
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        del event, argument
        if not self._is_begun:
            self._is_begun = frame.f_code.co_name == self._function
            return
        if _PRODUCT in frame.f_code.co_filename:
            self.count = next(self._steps)
            if self.count == self._step:
                os.kill(os.getpid(), signal.SIGKILL)


def run_killed(
    function: str, step: int, *arguments: str, cwd: Path, env: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.killed_command", function, str(step), *arguments],
        cwd=cwd,
        env={**env, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def count_steps(function: str, *arguments: str, cwd: Path, env: dict[str, str]) -> int:
    """Of a run to the end."""
    done = run_killed(function, 0, *arguments, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


def _main() -> None:
    function, step, *arguments = sys.argv[1:]
    killer = Killer(function, int(step))
    threading.setprofile(killer)
    sys.setprofile(killer)
    sys.argv = ["mainspring", *arguments]
    status: object = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
    sys.setprofile(None)
    sys.stderr.write(f"{killer.count}\n")
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    _main()
