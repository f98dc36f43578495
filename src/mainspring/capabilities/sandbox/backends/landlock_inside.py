"""Starts the agent behind Landlock and seccomp, and makes sure that no process outlives the
sandbox. In a container that is declared as the boundary, a uid may have to do without Landlock.

Four processes: this launcher, which the keeper may kill at any time; one that cleans up; the guard,
which kills everything that is left; and the agent. Programs can signal none of them: each is in a
Landlock domain that cannot signal the one above it. Without Landlock they can signal the guard and
the agent, which share their uid; then the one that cleans up kills everything that is left.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import signal
import stat

from mainspring.capabilities.sandbox.backends.agent import CONTROL_FD, install_filter, serve
from mainspring.capabilities.sandbox.backends.bare_inside import (
    check_unreachable,
    kill_descendants,
    kill_reachable,
)
from mainspring.capabilities.sandbox.backends.landlock_entry import grant_entry
from mainspring.capabilities.sandbox.backends.landlock_lend import grant_folder, grant_workspace
from mainspring.capabilities.sandbox.backends.landlock_rules import (
    CHANGE,
    READ,
    USE,
    enforce,
    files_ruleset,
    signals_ruleset,
)
from mainspring.capabilities.sandbox.backends.linux_capabilities import set_capabilities
from mainspring.capabilities.sandbox.wire import unpack, unpack_map
from mainspring.files.openat import open_absolute, open_beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ORDERS_FD = CONTROL_FD + 1
REFUSED = 125
"""The exit status of a launcher that started nothing."""

_DEVICES = ("null", "zero", "full", "random", "urandom")
# linux/prctl.h: PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS.
_SET_DEATH_SIGNAL, _SET_SUBREAPER, _SET_NO_NEW_PRIVS = 1, 36, 38
# Between looks for processes that got away; half wakes an idle session twice as often.
_WATCH_SECONDS = 0.2
_AWAITED = (signal.SIGTERM, signal.SIGCHLD)


class LandlockConfig:
    """The guard's config. `landlock.py` writes it."""

    def __init__(self, packed: bytes) -> None:
        values = unpack_map(packed)
        self.uid = int(values["uid"]) if values["uid"] else None
        self.has_rules = bool(values["has_rules"])
        self.entering_group = int(values["entering_group"])
        self.workspace = os.fsdecode(values["workspace"])
        self.tmp = os.fsdecode(values["tmp"])
        self.tmp_bytes = int(values["tmp_bytes"])
        self.system = [os.fsdecode(path) for path in unpack(values["system"])]
        self.interpreter = [os.fsdecode(path) for path in unpack(values["interpreter"])]
        self.readable = [os.fsdecode(path) for path in unpack(values["readable"])]
        self.hidden = [os.fsdecode(path) for path in unpack(values["hidden"])]
        self.protected = [os.fsdecode(path) for path in unpack(values["protected"])]
        self.filter = values["filter"]


def main() -> None:
    with open(ORDERS_FD, "rb") as stream:
        orders = LandlockConfig(stream.read())
    _die_with_parent(signal.SIGKILL)
    os.waitpid(_fork(_clean_up_after, orders), 0)


def _clean_up_after(config: LandlockConfig) -> None:
    """Remove the temporary folder after the guard has ended. The guard runs under a uid that
    cannot."""
    _die_with_parent(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    if not config.has_rules:
        _prctl(_SET_SUBREAPER, 1)
    guard = _fork(_guard, config)
    if signal.sigwait(_AWAITED) == signal.SIGTERM:
        os.kill(guard, signal.SIGTERM)
    os.waitpid(guard, 0)
    if not config.has_rules:
        _kill_all(kill_descendants)
        _empty(config.tmp)  # the guard may have been killed
    os.rmdir(config.tmp)


def _fork(work: Callable[[LandlockConfig], None], config: LandlockConfig) -> int:
    child = os.fork()
    if child == 0:
        try:
            work(config)
        except OSError as error:
            os.write(2, f"landlock: {error}\n".encode("utf-8", "surrogateescape"))
        finally:
            os._exit(REFUSED)
    os.close(CONTROL_FD)  # the keeper detects the agent's end by it
    return child


def _guard(config: LandlockConfig) -> None:
    launcher = os.getppid()
    workspace = open_absolute(config.workspace, os.O_RDONLY | os.O_DIRECTORY)
    allowed = _allowed_descriptors(config, workspace)
    _take_place(config, workspace)
    if config.uid is not None:
        os.setgroups([config.entering_group])
        os.setresgid(config.uid, config.uid, config.uid)
        os.setresuid(config.uid, config.uid, config.uid)
        set_capabilities(())  # a server that is not root keeps them through a change of uid
    _die_with_parent(signal.SIGTERM)
    if os.getppid() != launcher:
        return  # the launcher was killed before the death signal was set
    os.chdir(config.workspace)
    if not os.path.samestat(os.stat("."), os.fstat(workspace)):
        raise OSError(f"{config.workspace} was replaced by another folder")
    _prctl(_SET_SUBREAPER, 1)
    if config.has_rules:
        enforce(files_ruleset(allowed))
    else:
        _prctl(_SET_NO_NEW_PRIVS, 1)
    for place, _ in allowed:
        os.close(place)
    check_unreachable(launcher)
    install_filter(config.filter)
    agent = os.fork()
    if agent == 0:
        _be_agent(config)
    os.close(CONTROL_FD)
    _watch(agent, config)


def _take_place(config: LandlockConfig, workspace: int) -> None:
    if config.uid is not None:
        grant_entry(config.workspace, config.entering_group)
        for path in (*config.interpreter, *config.readable):
            grant_entry(path, config.entering_group, is_readable=True)
        grant_workspace(
            workspace,
            config.workspace,
            config.uid,
            hidden=config.hidden,
            protected=config.protected,
        )
        return
    for path in (*config.hidden, *config.protected):
        try:
            os.close(open_beneath(workspace, path))
        except FileNotFoundError:
            continue
        raise OSError(f"cannot hide {path} from programs")


def _allowed_descriptors(config: LandlockConfig, workspace: int) -> list[tuple[int, int]]:
    """Descriptors of what may be accessed, and how. /proc is not among them, since it would show
    the whole machine. Links are followed only in paths that the operator alone controls."""
    devices = [f"/dev/{name}" for name in _DEVICES]
    system = [*config.system, *config.interpreter]
    tmp = grant_folder(config.tmp, config.uid)
    return [
        *((place, READ) for place in _open_existing(system, _open_following_links)),
        *((place, USE) for place in _open_existing(devices, _open_following_links)),
        *((place, READ) for place in _open_existing(config.readable, open_absolute)),
        *((place, CHANGE) for place in (workspace, tmp)),
    ]


def _open_existing(paths: list[str], opened: Callable[[str], int]) -> Iterator[int]:
    for path in paths:
        try:
            yield opened(path)
        except FileNotFoundError:
            continue


def _open_following_links(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _be_agent(config: LandlockConfig) -> None:
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        _die_with_parent(signal.SIGKILL)
        _prctl(_SET_SUBREAPER, 1)
        control = _socket.socket(fileno=CONTROL_FD)
        if not config.has_rules:
            serve(control, sweep=kill_descendants)
            return
        inner = signals_ruleset()
        enforce(inner)
        check_unreachable(os.getppid())
        serve(control, confine=lambda: enforce(inner), sweep=kill_reachable)
    finally:
        os._exit(0)


def _watch(agent: int, config: LandlockConfig) -> None:
    """Wait until the launcher or the agent is gone, or temporary files exceed their limit; then
    kill everything."""
    while _is_running(agent) and _size_of(config.tmp) <= config.tmp_bytes:
        signal_info = signal.sigtimedwait(_AWAITED, _WATCH_SECONDS)
        if signal_info is not None and signal_info.si_signo == signal.SIGTERM:
            break
    _kill_all(kill_reachable if config.has_rules else kill_descendants)
    _empty(config.tmp)
    os._exit(0)


def _kill_all(sweep: Callable[[], None]) -> None:
    sweep()
    while _reap():
        sweep()


def _is_running(agent: int) -> bool:
    while True:
        try:
            process, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if process in (0, agent):
            return process == 0


def _reap() -> bool:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return False
    return True


def _size_of(folder: str) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total


def _empty(folder: str) -> None:
    for place, folders, names in os.walk(folder, topdown=False):
        for name in names + folders:
            path = os.path.join(place, name)
            try:
                is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
                os.rmdir(path) if is_folder else os.unlink(path)
            except OSError:
                continue  # the next user of the folder retries


def _die_with_parent(signal_number: int) -> None:
    _prctl(_SET_DEATH_SIGNAL, signal_number)


def _prctl(option: int, argument: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} was refused")
