"""Programs in a sandbox whose input and output the harness has."""

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE

import anyio
import psutil
import pytest

from mainspring.capabilities.sandbox.attached_program import attach_program
from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.backends.bwrap import Bubblewrap
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest

ECHO = 'echo started >&2; while read line; do echo "got $line in $PWD as $WHO"; done; exit 3'


def request(script: str) -> ExecRequest:
    argv = ("/bin/sh", "-c", script)
    return ExecRequest(key="server", argv=argv, env={"WHO": "me"}, wall_seconds=1_000_000.0)


async def test_a_program_exchanges_messages_and_ends_when_closed(
    sandbox: KeeperSandbox, site: SandboxSpec
) -> None:
    with anyio.fail_after(60):
        program = await attach_program(sandbox, request(ECHO))
        await program.send(b"one\n")
        assert await program.receive() == f"got one in {site.workspace} as me\n".encode()
        assert await program.error_output() == "started"
        large = b"x" * 500_000 + b"\n"  # more than a pipe holds
        received = b""
        async with anyio.create_task_group() as group:
            group.start_soon(program.send, large)
            while not received.endswith(b"me\n"):
                received += await program.receive()
        assert received.startswith(b"got xxx")
        await program.aclose()
        assert await program.receive() == b""
        with pytest.raises(OSError, match="closed"):
            await program.send(b"late\n")


async def test_a_program_that_ends_by_itself_is_read_to_its_end(sandbox: KeeperSandbox) -> None:
    with anyio.fail_after(60):
        program = await attach_program(sandbox, request("echo bye; echo broken >&2; read line"))
        await program.send(b"\n")
        assert await program.receive() == b"bye\n"
        assert await program.receive() == b""
        assert await program.error_output() == "broken"
        await program.aclose()


async def test_a_missing_program_is_reported(sandbox: KeeperSandbox) -> None:
    wanted = ExecRequest(key="server", argv=("/no/such/program",), wall_seconds=60.0)
    with anyio.fail_after(60):
        try:
            program = await attach_program(sandbox, wanted)
        except SandboxFailed:
            return  # it had ended before anybody could talk to it
        assert await program.receive() == b""
        assert "No such file" in await program.error_output()
        await program.aclose()


HARNESS = """
import anyio, sys
from pathlib import Path
from mainspring.capabilities.sandbox.attached_program import attach_program
from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.backends.bwrap import Bubblewrap
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.ports import ExecRequest

async def main(workspace, state, bwrap, owns_uid):
    site = SandboxSpec(session_id="test", workspace=Path(workspace), state=Path(state))
    sandbox = KeeperSandbox(
        site, Bubblewrap(path=Path(bwrap), owns_uid=owns_uid == "True"), linger_seconds=0.1
    )
    argv = ("/bin/sh", "-c", "trap '' TERM HUP INT PIPE; echo up; while true; do sleep 1; done")
    wanted = ExecRequest(key="server", argv=argv, wall_seconds=1_000_000.0)
    program = await attach_program(sandbox, wanted)
    sys.stdout.write((await program.receive()).decode())
    sys.stdout.flush()
    await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""


async def test_a_program_does_not_outlive_a_killed_harness(
    site: SandboxSpec, bubblewrap: Bubblewrap
) -> None:
    command = [sys.executable, "-c", HARNESS, str(site.workspace), str(site.state)]
    command += [str(bubblewrap.path), str(bubblewrap.owns_uid)]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, stdout=PIPE, stderr=None) as harness:
            assert harness.stdout is not None
            assert await harness.stdout.receive() == b"up\n"
            before = _running_in(site.state)
            assert before
            os.kill(harness.pid, signal.SIGKILL)
        for process in before:
            await anyio.to_thread.run_sync(process.wait, 30)


def _running_in(state: Path) -> list[psutil.Process]:
    """The keeper of a sandbox and all below it."""
    [keeper] = [
        process
        for process in psutil.process_iter()
        if _cwd(process) == str(state) and process.ppid() == 1
    ]
    return [keeper, *keeper.children(recursive=True)]


def _cwd(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except psutil.Error:
        return ""
