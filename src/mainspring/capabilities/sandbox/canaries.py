"""Whether a backend holds here: three things that must not work, tried inside it.

It counts only if its programs run, and can neither read a file outside, nor write one, nor connect
to a listener on the host's loopback.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from mainspring.capabilities.sandbox.cage import Backend, Site
from mainspring.capabilities.sandbox.client import KeptSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import Exec

_SECONDS = 30.0
_OUTSIDE_MODE = 0o777
# Each on its own: one that is refused must not keep the next from being tried.
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


@dataclass(frozen=True, slots=True)
class _Outside:
    """What programs must not reach."""

    folder: Path
    secret: str
    listener: socket.socket

    @property
    def arguments(self) -> tuple[str, ...]:
        port = self.listener.getsockname()[1]
        return (str(self.folder / "secret"), str(self.folder / "written"), str(port))

    def broken(self, said: str) -> str | None:
        if self.secret in said:
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


async def failure_of(backend: Backend, python: str) -> str | None:
    """Why it does not count; `None` if it holds."""
    place = await to_thread.run_sync(_place)
    try:
        with _outside(place / "outside") as outside, anyio.fail_after(_SECONDS):
            return await _tried(backend, place, outside, python)
    except SandboxFailed as failed:
        return str(failed)
    except TimeoutError:
        return f"nothing came of it in {_SECONDS:.0f} s"
    finally:
        await to_thread.run_sync(lambda: shutil.rmtree(place, ignore_errors=True))


async def _tried(backend: Backend, place: Path, outside: _Outside, python: str) -> str | None:
    async with KeptSandbox(probe_site(place), backend, linger_seconds=0) as sandbox:
        wanted = Exec(
            key="canaries",
            argv=(python, "-I", "-S", "-c", _ATTEMPTS, *outside.arguments),
            wall_seconds=_SECONDS / 2,
        )
        ran = await sandbox.run(wanted)
    said = ran.stdout.head.decode("utf-8", "replace")
    if broken := outside.broken(said):
        return broken
    if not said.startswith("ran\n"):
        return f"a program did not run: {ran.stderr.head.decode('utf-8', 'replace').strip()}"
    return None


def probe_site(place: Path) -> Site:
    return Site(session_id="probe", workspace=place / "work", state=place / "state")


def _place() -> Path:
    place = Path(tempfile.mkdtemp(prefix="mainspring-probe-"))
    place.chmod(0o755)  # whoever the sandbox is has to pass
    for name in ("work", "outside"):
        (place / name).mkdir()
    (place / "outside").chmod(_OUTSIDE_MODE)
    return place


@contextmanager
def _outside(folder: Path) -> Generator[_Outside]:
    secret = os.urandom(16).hex()
    (folder / "secret").write_text(secret)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield _Outside(folder, secret, listener)
