"""A launched sandbox from the keeper's side: the launcher process and the agent inside."""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import resource
import select
import sys
import time

from mainspring.capabilities.sandbox.backends.idmap import map_mounts, start_as
from mainspring.capabilities.sandbox.resource_monitor import descendants_of
from mainspring.capabilities.sandbox.wire import CHANGED
from mainspring.files.openat import identity, open_absolute, real_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal

    from mainspring.capabilities.sandbox.keeper_process.keeper import KeeperConfig
else:
    import _signal

CONTROL_FD = 3  # the first descriptor after standard input, output and error
RUN, KILL = b"r", b"k"
"""The same values as in the agent, whose import would take longer than the keeper's start."""

_LAUNCH_SECONDS = 15.0  # for the agent inside to report that it is ready
_ATTEMPTS = 5  # to launch when a path changes while it is mounted
_CHANGED = (CHANGED, "Race condition binding", "Can't find source path")
"""Messages of the agent and bubblewrap when a path no longer leads to what was opened."""
_INT = 4  # bytes of a C int in SCM_RIGHTS
_OUT_OF_THE_WAY = 256
"""Descriptors are first moved to numbers from here on, or from half of `ulimit -n` on if that is
less, so that none is overwritten before it is in its place."""


class LaunchedSandbox:
    """One start of the launcher. It is ready once the agent reports so.

    `given`: descriptors that the launcher gets from `CONTROL_FD` + 1 on; they are closed here.
    `uid`: the uid that it runs as; the last of `given` are then `trees` of `idmap.map_mounts`.
    """

    def __init__(
        self, config: KeeperConfig, files: list[int], *, uid: int | None, trees: int
    ) -> None:
        self._log = log = os.path.join(config.state, "launcher.log")
        self._own_pids = config.has_own_pids
        self.is_ready = False
        self.listener: int | None = None
        own_end, launcher_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.control = own_end
        self._pending = b""
        log_fd = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o600)
        sources = [launcher_end.detach(), *files]
        descriptors = [_move_out_of_the_way(source) for source in sources]
        previous = _offer_to_oom_killer(b"1000")
        try:
            if uid is None:
                self.pid = _spawn(config, descriptors, log_fd)
            else:
                plain, mapped = (
                    descriptors[: len(descriptors) - trees],
                    descriptors[len(descriptors) - trees :],
                )
                self.pid = start_as(
                    uid,
                    mapped,
                    lambda places: _become(config, plain, log_fd, places),
                    log=log_fd,
                    launcher=config.argv[0],
                )
        finally:
            _offer_to_oom_killer(previous)
            for descriptor in (*sources, *descriptors, log_fd):
                os.close(descriptor)
        own_end.setblocking(False)

    def read_messages(self) -> list[bytes] | None:
        """Lines from the agent; `None` when the agent is gone."""
        space = _socket.CMSG_SPACE(_INT)
        try:
            piece, ancillary, _, _ = self.control.recvmsg(4096, space)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not piece:
            return None
        for _, _, packed in ancillary:
            self.listener = int.from_bytes(packed[:_INT], sys.byteorder)
            os.set_inheritable(self.listener, False)
        *lines, self._pending = (self._pending + piece).split(b"\n")
        if lines and not self.is_ready:
            self.is_ready = lines.pop(0) == b"ready"
        return lines

    def start(self, request: bytes, streams: tuple[int, int, int]) -> None:
        """Ask the agent to start a program.

        Raises:
            OSError: the agent is gone, so nothing was started.
        """
        request_file = memory_file(request)
        rights = b"".join(n.to_bytes(_INT, sys.byteorder) for n in (request_file, *streams))
        try:
            self.control.sendmsg([RUN], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        finally:
            os.close(request_file)

    def stop_program(self) -> None:
        try:
            self.control.send(KILL)
        except OSError:
            return  # the agent is gone, and the program with it

    def end(self) -> None:
        """Kill the launcher and every process of the sandbox."""
        while not self._own_pids and (processes := descendants_of(self.pid)):
            for process in processes:
                _kill(process)
        _kill(self.pid)
        os.waitpid(self.pid, 0)
        self.control.close()
        if self.listener is not None:
            os.close(self.listener)

    def launcher_output(self) -> str:
        """The launcher's error output."""
        with open(self._log, "rb") as file:
            return file.read(4000).decode("utf-8", "replace").strip()


def launch_sandbox(config: KeeperConfig) -> LaunchedSandbox | str:
    """The sandbox, once its agent is ready; or why there is none. If the workspace changed while
    it was being mounted, the launch is tried again."""
    complaint = ""
    for _ in range(_ATTEMPTS):
        try:
            sandbox = _launch(config)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        if sandbox.is_ready:
            return sandbox
        sandbox.end()
        complaint = sandbox.launcher_output()
        if not any(sign in complaint for sign in _CHANGED):
            break
    return complaint or "the launcher did not start the agent and did not report why"


def _spawn(config: KeeperConfig, files: list[int], log: int) -> int:
    places = [(os.POSIX_SPAWN_DUP2, source, CONTROL_FD + n) for n, source in enumerate(files)]
    return os.posix_spawn(
        config.argv[0],
        config.argv,
        config.env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
            *places,
        ],
    )


def _become(config: KeeperConfig, files: list[int], log: int, trees: list[int]) -> None:
    descriptors = list(map(_move_out_of_the_way, trees))
    for place, source in enumerate(
        (os.open(os.devnull, os.O_RDONLY), log, log, *files, *descriptors)
    ):
        os.dup2(source, place)
    os.execve(config.argv[0], config.argv, config.env)


def _move_out_of_the_way(descriptor: int) -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = min(_OUT_OF_THE_WAY, allowed // 2) if allowed > 0 else _OUT_OF_THE_WAY
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, first)


def _launch(config: KeeperConfig) -> LaunchedSandbox:
    files = list(map(memory_file, config.files))
    sources = [_open_source(config, path) for path in config.sources]
    uid, trees = config.uid, []
    if uid is not None:
        try:
            workspace = sources[config.sources.index(config.workspace)]
            trees = map_mounts(sources, os.fstat(workspace).st_uid, uid)
        except OSError:  # no idmapped mounts here: use our own uid
            uid = None
    if uid is not None:
        for source in sources:
            os.close(source)
    sandbox = LaunchedSandbox(config, [*files, *(trees or sources)], uid=uid, trees=len(trees))
    poll = select.poll()
    poll.register(sandbox.control.fileno(), select.POLLIN)
    until = time.monotonic() + _LAUNCH_SECONDS
    while not sandbox.is_ready and (seconds := until - time.monotonic()) > 0:
        if poll.poll(int(seconds * 1000) + 1) and sandbox.read_messages() is None:
            break
    return sandbox


def _open_source(config: KeeperConfig, path: str) -> int:
    """Open a file or folder for the launcher to mount.

    Raises:
        OSError: it does not exist, or a program of the session may have put a link in its way.
    """
    try:
        is_real = path == config.workspace
        descriptor = open_absolute(
            path if is_real else real_path(path, distrusted=config.distrusted)
        )
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    if identity(os.fstat(descriptor)) in config.forbidden:
        raise OSError(errno.EPERM, "must not be visible to programs", path)
    return descriptor


def memory_file(content: bytes) -> int:
    """An unnamed file with this content, positioned at its start."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("mainspring")
    else:
        descriptor = os.open("unnamed", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.unlink("unnamed")
    remainder = memoryview(content)
    while remainder:
        remainder = remainder[os.write(descriptor, remainder) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _offer_to_oom_killer(score: bytes | None) -> bytes | None:
    """Set the OOM score that new processes inherit; returns the previous one. Only root can set it
    so that programs cannot lower it again: for other users the agent sets it."""
    if os.geteuid() != 0 or score is None:
        return None
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_RDWR)
    except OSError:
        return None
    previous = os.read(descriptor, 16)
    os.pwrite(descriptor, score, 0)
    os.close(descriptor)
    return previous


def _kill(process: int) -> None:
    try:
        os.kill(process, _signal.SIGKILL)
    except ProcessLookupError:
        return
