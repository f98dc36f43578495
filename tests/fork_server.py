"""The `mainspring` command in processes of its own that need not import everything first.

`python -m tests.fork_server` has imported all of Mainspring and is single-threaded; for every order
it forks a process that becomes the command: with its own arguments, folder, environment and
streams. (That the command starts from nothing as well is what tests/cli/test_startup.py is about.)
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, TypeAlias

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process, UNIXSocketStream
from msgspec import Struct

import mainspring
from mainspring.edges.cli.main import main as command

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
"""What the fixture `mainspring` is: runs the command and returns what it printed."""
_ROOT = Path(__file__).parents[1]
_SECONDS = 60
_MOST = 200_000  # bytes of an order, which is one message


class Order(Struct, frozen=True, kw_only=True):
    arguments: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    is_leader: bool = False
    """It leads a session, at the terminal that is its stdin: Ctrl-C comes there."""


class Child:
    """The parent's side of one command."""

    def __init__(self, order: Order, *streams: int) -> None:
        self._told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._told.settimeout(_SECONDS)
        with theirs:
            socket.send_fds(_orders(), [msgspec.json.encode(order)], [*streams, theirs.fileno()])
        self.pid = int(self._told.recv(64))
        self._status: int | None = None

    def wait(self) -> int:
        """The exit status, or less than 0 for the signal that has ended it."""
        if self._status is None:
            with self._told:
                self._status = int(self._told.recv(64))
        return self._status

    def poll(self) -> int | None:
        """As `wait`, or None if it has not ended."""
        if self._status is None and not select.select([self._told], [], [], 0)[0]:
            return None
        return self.wait()

    def send_signal(self, number: int) -> None:
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    *arguments: str, cwd: Path, env: Mapping[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` would, with what it printed."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(stdin.encode())
        given.seek(0)
        order = Order(arguments=arguments, cwd=str(cwd), env=env)
        child = Child(order, given.fileno(), output.fileno(), errors.fileno())
        return subprocess.CompletedProcess(arguments, child.wait(), _text(output), _text(errors))


class Forked(Process):
    """The command as `anyio.open_process` would have it. One socket is its input and its output."""

    def __init__(self, child: Child, stream: UNIXSocketStream) -> None:
        self._child = child
        self._stream = stream

    async def wait(self) -> int:
        return await to_thread.run_sync(self._child.wait, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """It is killed if it goes on, as other processes are."""
        with anyio.CancelScope(shield=True):
            self.kill()
            await self._stream.aclose()
            await self.wait()

    def terminate(self) -> None:
        self._child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._child.kill()

    def send_signal(self, signal: signal.Signals) -> None:
        self._child.send_signal(signal)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    @property
    def stdin(self) -> ByteSendStream:
        return self._stream

    @property
    def stdout(self) -> ByteReceiveStream:
        return self._stream

    @property
    def stderr(self) -> None:
        return None


async def open_command(
    *arguments: str, cwd: Path, env: Mapping[str, str], stderr: int = 2
) -> Forked:
    """Start it; `run` is for what ends by itself."""
    ours, theirs = socket.socketpair()
    with theirs:
        order = Order(arguments=arguments, cwd=str(cwd), env=env)
        child = await to_thread.run_sync(Child, order, theirs.fileno(), theirs.fileno(), stderr)
    return Forked(child, await UNIXSocketStream.from_socket(ours))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


@cache
def _orders() -> socket.socket:
    """Where the server of this process takes orders; there is one as long as this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = [sys.executable, "-m", __name__, str(theirs.fileno())]
        server = subprocess.Popen(
            words, cwd=_ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
    atexit.register(server.wait, _SECONDS)
    atexit.register(ours.close)  # which ends it, and comes first
    return ours


def main(orders: socket.socket) -> None:
    """Fork one for every order, until nobody is there to give any."""
    _import_everything()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person who stops the tests stops us as well
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to bury them
    while True:
        line, handles, _, _ = socket.recv_fds(orders, _MOST, 4)
        if not line:
            return
        if not os.fork():
            orders.close()
            return _watch(msgspec.json.decode(line, type=Order), *handles)
        for handle in handles:
            os.close(handle)


def _import_everything() -> None:
    for found in pkgutil.walk_packages(mainspring.__path__, "mainspring."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # the command tells of it if it needs it
                importlib.import_module(found.name)
    anyio.run(anyio.sleep, 0)  # loads the backend
    gc.freeze()


def _watch(order: Order, stdin: int, stdout: int, stderr: int, told: int) -> None:
    """Start the command, tell its process id, and how it ended when it has."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        os.close(told)
        _become(order, stdin, stdout, stderr)
        return
    for handle in (stdin, stdout, stderr):
        os.close(handle)
    os.write(told, b"%d" % child)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError):  # whoever asked may have gone
        os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(order: Order, *streams: int) -> None:
    """What `python -m mainspring` finds when it starts, and the command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    if order.is_leader:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(order.cwd)
    environ = os.environ  # noqa: TID251 (of the process under test)
    environ.clear()
    environ.update(order.env)
    time.tzset()
    sys.argv[:] = ["mainspring", *order.arguments]
    sys.path[0] = order.cwd
    statuses: list[int] = []
    atexit.register(_leave, statuses)
    try:
        command()
    except SystemExit as end:
        if isinstance(end.code, int):
            statuses.append(end.code)
        raise


def _leave(statuses: Sequence[int]) -> None:
    """After threads and all that is done at exit; to take every module apart takes long."""
    if statuses:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(statuses[0])


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
