"""A command that runs as in a default container: see `tools/confined.py`."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_TOOL = Path(__file__).parents[1] / "tools/confined.py"


def run_confined(
    *command: str,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Skips the test where no command can be confined."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can take its own rights away")
    confined = [sys.executable, str(_TOOL), *options]
    if not _succeeds(confined):  # in a container only this lets root install a system call filter
        confined.append("--no-new-privs")
        if not _succeeds(confined):
            pytest.skip("no system call filter can be installed here")
    return subprocess.run(
        [*confined, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        cwd=folder,
    )


def _succeeds(confined: list[str]) -> bool:
    tried = subprocess.run([*confined, "true"], capture_output=True, timeout=60, check=False)
    return tried.returncode == 0
