"""A container that is declared to be the boundary: programs run under a uid of the session's own,
and only owners, modes and the system call filter keep them from files and processes of ours."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.sandbox.attacks.attack_targets import fresh_root
from tests.sandbox.conftest import sh
from tests.written_files import write_file

from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.backends.landlock import Landlock
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.errors import SandboxFailed

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can give a uid of its own"
)
BOUNDARY = Landlock(owns_uid=True, is_in_boundary=True)
_PYTHON = "python3 -c '{}'"
_TRACE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) != 0)"
_CONNECT = 'import socket; socket.create_connection(("127.0.0.1", {port}), 5)'
_PACKET = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"
_ROOT = "import os; os.setuid(0)"
_ABSTRACT = 'import socket; socket.socket(socket.AF_UNIX).connect("\\0{name}")'
_LIMIT = "import resource; resource.prlimit({pid}, resource.RLIMIT_NOFILE, (9, 9))"
ATTACKS = {
    "read the store": "cat {own}/store.db",
    "write to the store": "echo x >> {own}/store.db",
    "replace the store": "mv {own}/store.db {own}/other.db",
    "remove the folder of the store": "rm -r {own}",
    "list the folder of the store": "ls {own}",
    "read the key of the vault": "cat {own}/vault.key",
    "copy the key through a hard link": "ln {own}/vault.key key && cat key",
    "read the key through a link of its own": "ln -s {own}/vault.key soft && cat soft",
    "make the key readable": "chmod 644 {own}/vault.key",
    "own the key": "chown $(id -u) {own}/vault.key",
    "read the variables of the server": "cat /proc/{pid}/environ",
    "read the memory of the server": "dd if=/proc/{pid}/mem bs=1 count=1",
    "read the open files of the server": "ls /proc/{pid}/fd/",
    "enter the server's folder": "cd /proc/{pid}/cwd/ && ls",
    "trace the server": _PYTHON.format(_TRACE),
    "end the server": "kill -9 {pid}",
    "stop the server": "kill -STOP {pid}",
    "limit the server": _PYTHON.format(_LIMIT),
    "use the keeper's socket": "ls {state}",
    "read another session's workspace": "cat {other}/notes.txt",
    "write to another session's workspace": "echo x > {other}/new",
    "read the launcher's log": "cat {state}/launcher.log",
    "become root": _PYTHON.format(_ROOT),
    "use a set-uid program": "cp /bin/sh s && chmod 4755 s && ./s -p -c 'test $(id -u) = 0'",
    "connect to a port": _PYTHON.format(_CONNECT),
    "open a raw socket": _PYTHON.format(_PACKET),
    "reach a hidden folder": "cat .mainspring/secret",
    "change a protected file": "echo x > .git/hooks/pre-commit",
    "move a protected folder away": "mv .git/hooks hooks",
    "change the system": "echo x >> /etc/passwd",
    "make a device": "mknod device c 1 1",
    "mount": "mount -t tmpfs none /mnt",
    "make a namespace": "unshare -r true",
    "read the kernel's log": "dmesg",
}


@pytest.fixture
def site() -> Generator[SandboxSpec]:
    root = fresh_root()
    root.chmod(0o755)
    work = root / "work"
    for name in ("own/store.db", "own/vault.key", "other/notes.txt", "work/.mainspring/secret"):
        write_file(root / name, "secret\n")
        (root / name).chmod(0o600)
    write_file(work / ".git/hooks/pre-commit", "#!/bin/sh\n")
    (root / "own").chmod(0o700)
    (root / "other").chmod(0o700)
    yield SandboxSpec(
        session_id="session",
        workspace=work,
        state=root / "state",
        hidden=(work / ".mainspring",),
        protected=(work / ".git/hooks",),
        private=(root / "own/store.db", root / "own/vault.key"),
    )
    shutil.rmtree(root)


async def test_no_attack_on_the_server_succeeds(site: SandboxSpec):
    root = site.workspace.parent
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        subprocess.Popen(["sleep", "600"], env={"API_KEY": "secret"}, cwd=root / "own") as server,
    ):
        facts = {
            "own": root / "own",
            "other": root / "other",
            "state": site.state,
            "pid": server.pid,
            "port": listener.getsockname()[1],
        }
        try:
            async with KeeperSandbox(site, BOUNDARY) as sandbox:
                assert (await sh(sandbox, "echo x > made; cat made; id -u")).status == 0
                won = [
                    name
                    for name, attack in ATTACKS.items()
                    if (await sh(sandbox, attack.format(**facts))).status == 0
                ]
            assert server.poll() is None
        finally:
            server.send_signal(signal.SIGKILL)
    assert won == []
    assert (root / "own/vault.key").read_text() == "secret\n"


async def test_a_program_that_ends_its_guard_leaves_nothing_running(site: SandboxSpec):
    async with KeeperSandbox(site, BOUNDARY) as sandbox:
        ran = await sh(sandbox, "setsid sleep 4217 & sleep 0.1; kill -9 -1; true")
    assert ran.status != 0 or ran.stop_cause is not None
    with anyio.fail_after(60):
        while _runs("4217"):  # noqa: ASYNC110 -- of other processes there is no event
            await anyio.sleep(0.05)


async def test_a_store_that_others_may_read_is_refused(site: SandboxSpec):
    (site.workspace.parent / "own/store.db").chmod(0o644)
    with pytest.raises(SandboxFailed, match=r"chmod 600 .*store\.db"):
        async with KeeperSandbox(site, BOUNDARY):
            pass
    network = replace(site, private=(), network=True)
    with pytest.raises(SandboxFailed, match="cannot let programs reach a proxy"):
        async with KeeperSandbox(network, BOUNDARY):
            pass


def _runs(argument: str) -> bool:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if argument.encode() in process.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False
