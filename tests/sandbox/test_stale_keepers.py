"""What another version has left running is ended at the start of this one, and never used."""

import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.sandbox.conftest import sh
from tests.sandbox.test_keeper import keeper_of, wait_until

from mainspring.capabilities.sandbox.backend import Backend, SandboxSpec
from mainspring.capabilities.sandbox.keeper_process.stale_keepers import (
    end_keeper_if_stale,
    end_stale_keepers,
    stamp,
)
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox, SandboxServices
from mainspring.core.ports import ExecRequest


def is_dead(process: int) -> bool:
    """Or about to be: nobody may have waited for it yet."""
    try:
        said = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return said.rpartition(")")[2].split()[0] == "Z"


async def test_a_sandbox_of_another_version_is_not_used(site: SandboxSpec, backend: Backend):
    async with KeeperSandbox(site, backend) as sandbox:
        await sh(sandbox, "true")
        before = keeper_of(site)
        assert (await sh(sandbox, "echo again")).stdout.head == b"again\n"
        assert keeper_of(site) == before
        for noted in ("another-version 0", None):
            before = keeper_of(site)
            if noted is None:
                (site.state / "stamp").unlink()  # as before there were stamps
            else:
                (site.state / "stamp").write_text(noted)
            assert (await sh(sandbox, "echo new")).stdout.head == b"new\n"
            assert is_dead(before)
            assert keeper_of(site) != before


async def test_only_keepers_of_another_version_are_ended(site: SandboxSpec, backend: Backend):
    """A service among them: it would run for as long as an hour in its old sandbox."""
    sandbox_session = site.state / "hands"
    old, new = (replace(site, state=sandbox_session / name) for name in ("old", "new"))
    async with KeeperSandbox(new, backend) as current:
        await sh(current, "true")
        services = SandboxServices(old, backend)
        begun = ExecRequest(key="service", argv=("sleep", "600"), wall_seconds=600)
        await services.start("web", begun)
        assert await to_thread.run_sync(end_stale_keepers, sandbox_session) == 0
        [noted] = old.state.glob("services/*/stamp")
        noted.write_text("another-version 0")
        with anyio.fail_after(60):
            assert await to_thread.run_sync(end_stale_keepers, sandbox_session) == 1
        progress = await services.output("web")
        assert progress is not None
        assert not progress.is_running
        assert (await sh(current, "echo on")).stdout.head == b"on\n"
        await services.close()


async def test_a_keeper_that_does_not_answer_is_killed(site: SandboxSpec, backend: Backend):
    sandbox = KeeperSandbox(site, backend)
    await sh(sandbox, "true")
    keeper = keeper_of(site)
    os.kill(keeper, signal.SIGSTOP)
    await to_thread.run_sync(lambda: end_keeper_if_stale("another", site.state, seconds=0.2))
    await wait_until(lambda: is_dead(keeper))
    await sandbox.leave()


def test_a_state_folder_writable_by_others_is_left_alone(site: SandboxSpec):
    """Somebody else's socket there could be anybody's: nothing is sent to it."""
    site.state.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(site.state)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("keeper.sock")
        listener.listen()
    site.state.chmod(0o777)
    end_keeper_if_stale(stamp("other"), site.state)
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()
