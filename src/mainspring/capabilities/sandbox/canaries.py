"""Tests whether a backend isolates programs on this machine, with three attempts that must fail
inside it.

A backend passes only if its programs run, and can neither read a file outside, nor write one, nor
connect to a listener on the host's loopback. If a container is the boundary, the file outside is
one of ours alone: files that everybody may read are not kept from programs there.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.sandbox.backend import Backend, SandboxSpec
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest

_SECONDS = 30.0  # for all attempts with the start of the sandbox; half for the program
_OUTSIDE_MODE = 0o777  # any uid could write here, so that only the sandbox can prevent it
_PRIVATE_MODE = 0o700
"""For programs that only a uid of their own keeps from files outside."""
# Each attempt catches its own error: a refused one must not prevent the next.
_ATTEMPTS = """
import socket, sys
print("ran", flush=True)
def read(): print(open(sys.argv[1]).read(), flush=True)
def write(): open(sys.argv[2], "w").close()
def connect(): socket.create_connection(("127.0.0.1", int(sys.argv[3])), 2)
for attempt in (read, write, connect):
    try: attempt()
    except OSError: pass
"""


class _CanaryTargets(Struct, frozen=True):
    """What programs must not reach."""

    folder: Path
    secret: str
    listener: socket.socket

    @property
    def arguments(self) -> tuple[str, ...]:
        port = self.listener.getsockname()[1]
        return (str(self.folder / "secret"), str(self.folder / "written"), str(port))

    def broken(self, output: str) -> str | None:
        if self.secret in output:
            return "programs can read files outside"
        if (self.folder / "written").exists():
            return "programs can write files outside"
        if self._was_reached():
            return "programs can connect to the host's loopback"
        return None

    def _was_reached(self) -> bool:
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


class CanaryFailure(Struct, frozen=True):
    reason: str
    is_timeout: bool = False
    """A machine that is busy may be the cause."""


async def canary_failure(backend: Backend, python: str) -> CanaryFailure | None:
    """Why the backend fails its canaries; `None` if it passes."""
    mode = _PRIVATE_MODE if backend.level == "container" else _OUTSIDE_MODE
    place = await to_thread.run_sync(_make_probe_folder, mode)
    try:
        with _canary_targets(place / "outside") as outside, anyio.fail_after(_SECONDS):
            broken = await _run_canaries(backend, place, outside, python)
            return None if broken is None else CanaryFailure(broken)
    except SandboxFailed as failed:
        return CanaryFailure(str(failed))
    except TimeoutError:
        return CanaryFailure(f"no result within {_SECONDS:.0f} s", is_timeout=True)
    finally:
        await to_thread.run_sync(lambda: shutil.rmtree(place, ignore_errors=True))


async def _run_canaries(
    backend: Backend, place: Path, targets: _CanaryTargets, python: str
) -> str | None:
    async with KeeperSandbox(probe_spec(place), backend, linger_seconds=0) as sandbox:
        exec_request = ExecRequest(
            key="canaries",
            argv=(python, "-I", "-S", "-c", _ATTEMPTS, *targets.arguments),
            wall_seconds=_SECONDS / 2,
        )
        ran = await sandbox.run(exec_request)
    output = ran.stdout.head.decode("utf-8", "replace")
    if broken := targets.broken(output):
        return broken
    if not output.startswith("ran\n"):
        return f"a program did not run: {ran.stderr.head.decode('utf-8', 'replace').strip()}"
    return None


def probe_spec(place: Path) -> SandboxSpec:
    return SandboxSpec(session_id="probe", workspace=place / "work", state=place / "state")


def _make_probe_folder(outside_mode: int) -> Path:
    place = Path(tempfile.mkdtemp(prefix="mainspring-probe-"))
    place.chmod(0o755)  # any uid of the sandbox must be able to enter
    for name in ("work", "outside"):
        (place / name).mkdir()
    (place / "outside").chmod(outside_mode)
    return place


@contextmanager
def _canary_targets(folder: Path) -> Generator[_CanaryTargets]:
    secret = os.urandom(16).hex()
    (folder / "secret").write_text(secret)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield _CanaryTargets(folder, secret, listener)
