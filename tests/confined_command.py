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
    tried = subprocess.run([*confined, "true"], capture_output=True, timeout=60, check=False)
    if tried.returncode != 0:
        pytest.skip("no seccomp filter can be installed here without no_new_privs")
    return subprocess.run(
        [*confined, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        cwd=folder,
    )
