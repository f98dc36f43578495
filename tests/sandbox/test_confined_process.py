"""Host programs that are confined, and what is left of one that is stopped."""

import gc
import sys
from pathlib import Path

import anyio
import pytest

from mainspring.capabilities.sandbox.backends import confined_process
from mainspring.capabilities.sandbox.backends.confined_process import run_confined

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.mark.parametrize("seconds", [0.0001, 0.001, 0.1])
async def test_cancelling_leaves_no_process_and_no_open_pipes(tmp_path: Path, seconds: float):
    with anyio.fail_after(60), anyio.move_on_after(seconds) as scope:
        await run_confined(["sleep", "600"], tmp_path, ENVIRONMENT)
    assert scope.cancelled_caught
    gc.collect()  # it would warn about a process that runs, and about pipes that are open


async def test_a_time_limit_leaves_no_process_and_no_open_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(confined_process, "_SECONDS", 0.01)
    with anyio.fail_after(60), pytest.raises(TimeoutError):
        await run_confined(["sleep", "600"], tmp_path, ENVIRONMENT)
    gc.collect()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits its memory")
async def test_a_program_whose_memory_cannot_be_limited_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(confined_process, "prlimit", refuse)
    with anyio.fail_after(60), pytest.raises(PermissionError):
        await run_confined(["sleep", "600"], tmp_path, ENVIRONMENT)
    gc.collect()
