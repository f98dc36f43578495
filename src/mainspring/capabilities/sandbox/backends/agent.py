"""The first process inside a sandbox: it starts programs for the keeper, one at a time, and kills
every process that a program leaves behind.

It is run as a script (`python3 -I -S agent.py`) by any Python from 3.9 on that the sandbox has. It
imports only fast modules: `socket` and `signal` would take longer than the rest of its start.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import resource
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import TypeAlias

    Dress: TypeAlias = Callable[[str, list[str], dict[str, str]], tuple[list[str], dict[str, str]]]
else:
    import _signal

CONTROL_FD = 3  # the first descriptor after standard input, output and error
PROXY_PORT = 3128  # squid's port, which programs know as a proxy's
RUN, KILL = b"r", b"k"
"""Messages from the keeper. `RUN` comes with four descriptors: the request and the three
streams."""

_INT = 4  # bytes of a C int in SCM_RIGHTS
# linux/prctl.h: PR_SET_DUMPABLE, PR_SET_SECCOMP, SECCOMP_MODE_FILTER.
_SET_DUMPABLE, _SET_SECCOMP, _FILTER = 4, 22, 2
_CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)


def main() -> None:
    listens = "listen" in sys.argv[1:]
    serve(_socket.socket(fileno=CONTROL_FD), listens=listens)


def kill_namespace() -> None:
    """Kill every process but the caller, which must be the first process of a PID namespace."""
    if os.getpid() != 1:
        raise RuntimeError("not in a PID namespace of its own: refusing to kill everything")
    try:
        os.kill(-1, _signal.SIGKILL)
    except ProcessLookupError:
        return


def always() -> bool:
    return True


def unconfined() -> None:
    return None


def unchanged_command(
    cwd: str, argv: list[str], env: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    del cwd
    return argv, env


def serve(
    control: _socket.socket,
    *,
    listens: bool = False,
    confine: Callable[[], None] = unconfined,
    sweep: Callable[[], None] = kill_namespace,
    dress: Dress = unchanged_command,
    is_guarded: Callable[[], bool] = always,
) -> None:
    """Serve until the keeper disconnects. `confine` is called in each program's process before
    `exec`; `sweep` kills all programs, and is called again while any are left. `dress` may
    replace the command and environment of a program. No program is started unless `is_guarded`
    returns true."""
    _hide_from_programs()
    os.set_inheritable(control.fileno(), False)
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    _signal.signal(_signal.SIGCHLD, _ignore_signal)
    _signal.set_wakeup_fd(wake)
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    poll.register(ended, select.POLLIN)
    _greet(control, listens)
    program = 0
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if ended in ready:
            os.read(ended, 4096)
            status = _status_of(program)
            if program and status is not None:
                _clear(sweep)
                program = 0
                control.sendall(b"ended %d\n" % status)
        if control.fileno() in ready:
            word, descriptors = _receive(control)
            if word == RUN:
                program = _start(descriptors, confine, dress) if is_guarded() else 0
                _settle(control, descriptors, program)
            elif program or not word:
                sweep()
            if not word:
                _clear(sweep)
                return


def _ignore_signal(_signal_number: int, _frame: object) -> None:
    return None


def install_filter(program: bytes) -> None:
    """Install a seccomp filter on this thread and all its children; it cannot be removed."""

    class Program(ctypes.Structure):
        _fields_ = (("count", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    loaded = Program(len(program) // 8, program)
    if ctypes.CDLL(None).prctl(_SET_SECCOMP, _FILTER, ctypes.byref(loaded), 0, 0) != 0:
        raise OSError("the seccomp filter was refused")


def _hide_from_programs() -> None:
    """Make this process undumpable, so that programs of the same uid cannot trace or inspect it."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError("PR_SET_DUMPABLE was refused")


def _greet(control: _socket.socket, listens: bool) -> None:
    if not listens:
        control.sendall(b"ready\n")
        return
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", PROXY_PORT))
    listener.listen(128)
    packed = listener.fileno().to_bytes(_INT, sys.byteorder)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)
    control.sendmsg([b"ready\n"], [rights])
    listener.close()


def _receive(control: _socket.socket) -> tuple[bytes, list[int]]:
    word, ancillary, _, _ = control.recvmsg(1, _socket.CMSG_SPACE(4 * _INT), _CLOSE_ON_EXEC)
    descriptors = [
        int.from_bytes(packed[at : at + _INT], sys.byteorder)
        for _, _, packed in ancillary
        for at in range(0, len(packed), _INT)
    ]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return word, descriptors


def _start(descriptors: list[int], confine: Callable[[], None], dress: Dress) -> int:
    program = os.fork()
    if program == 0:
        try:
            _become(descriptors, confine, dress)
        finally:
            os._exit(126)
    return program


def _settle(control: _socket.socket, descriptors: list[int], program: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    if program == 0:
        control.sendall(b"unguarded\n")


def _become(descriptors: list[int], confine: Callable[[], None], dress: Dress) -> None:
    request, *streams = descriptors
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    cwd, limits, count, *words = _read(request).decode("utf-8", "surrogateescape").split("\0")
    argv, env = words[: int(count)], words[int(count) :]
    try:
        os.setsid()
        os.umask(0o022)
        os.chdir(cwd)
        _offer_to_oom_killer()
        for limit in limits.split():
            _limit(*limit.split("="))
        _signal.set_wakeup_fd(-1)
        for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):  # ignored by Python, not for programs
            _signal.signal(ignored, _signal.SIG_DFL)
        confine()
        command, variables = dress(cwd, argv, dict(pair.split("=", 1) for pair in env))
        os.execvpe(command[0], command, variables)
    except OSError as error:
        what = cwd if error.filename == cwd else argv[0]
        os.write(2, f"{what}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _offer_to_oom_killer() -> None:
    """Make this process the first that the kernel kills when the machine runs out of memory."""
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return
    os.write(descriptor, b"1000")
    os.close(descriptor)


def _read(request: int) -> bytes:
    size = os.fstat(request).st_size
    return os.pread(request, size, 0)


def _limit(name: str, limit: str) -> None:
    kind = getattr(resource, "RLIMIT_" + name)
    _, hard = resource.getrlimit(kind)
    most = int(limit) if hard == resource.RLIM_INFINITY else min(int(limit), hard)
    resource.setrlimit(kind, (most, most))


def _status_of(program: int) -> int | None:
    """Reap all children that have ended; the program's exit status if it is one of them."""
    status = None
    while True:
        try:
            process, waited = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if process == 0:
            return status
        if process == program:
            code = os.waitstatus_to_exitcode(waited)
            status = code if code >= 0 else 128 - code


def _clear(sweep: Callable[[], None]) -> None:
    """Kill and reap until no child is left: processes may fork while others are being killed."""
    while True:
        sweep()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
