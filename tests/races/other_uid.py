"""Processes of the kit under another uid."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_as(uid: int, *words: str) -> int:
    """The kit as somebody else; its status.

    Raises:
        LookupError: there is no Python for them.
    """
    return subprocess.Popen([python_for(uid), "-m", "tests.races", *words], **_how(uid)).wait()


@cache
def python_for(uid: int) -> str:
    """One that somebody else may run: ours may be in a home folder.

    Raises:
        LookupError: there is none.
    """
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            subprocess.run(
                [python, "-c", "import tests.races.by_runtime"],
                check=True,
                capture_output=True,
                timeout=60,
                **_how(uid),
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    raise LookupError(f"uid {uid} can run no Python that has what we need")


def _how(uid: int) -> dict[str, Any]:
    paths = [str(ROOT), *filter(None, sys.path)]
    environment = {"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return {"cwd": ROOT, "env": environment, "user": uid, "group": uid, "extra_groups": []}
