"""An attack: its program, and how you see from outside whether it succeeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

from tests.sandbox.attacks.attack_targets import Scene

from mainspring.core.ports import ExecRequest, ExecResult

Judge: TypeAlias = Callable[[Scene, ExecResult], bool]

# Numbers by name, for what the C library has no function for: (x86_64, aarch64).
_NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fanotify_init": (300, 262),
    "fchmodat2": (452, 452),
    "finit_module": (313, 273),
    "fsopen": (430, 430),
    "io_uring_setup": (425, 425),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "mq_open": (240, 180),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "tgkill": (234, 131),
    "userfaultfd": (323, 282),
}
PRELUDE = f"""
import ctypes, fcntl, mmap, os, resource, signal, socket, stat, struct, sys, time
E = os.environ
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {_NUMBERS!r}
def call(name, *args):
    return libc.syscall(NUMBERS[name][os.uname().machine != "x86_64"], *args)
def win():
    print(E["WIN"], flush=True)
def win_if(is_won):
    if is_won: win()
def each(*attempts):  # the first that gets through is enough; one that fails stops no other
    for attempt in attempts:
        try: attempt()
        except (OSError, ValueError): pass
def show(path):
    with open(path, "rb") as file: sys.stdout.buffer.write(file.read(65536) + b"\\n")
    sys.stdout.flush()
"""


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    won: Judge
    _: KW_ONLY
    bash: str = ""
    python: str = ""
    """Runs after `PRELUDE`."""
    harmless: bool = False
    """Wins where there is no sandbox, and hurts nobody there: the list is calibrated by these."""
    wall_seconds: float = 5.0

    def exec(self, scene: Scene) -> ExecRequest:
        argv = (
            ("python3", "-S", "-c", PRELUDE + self.python)
            if self.python
            else ("bash", "-c", self.bash)
        )
        return ExecRequest(
            key=f"{self.name}-{scene.round}",
            argv=argv,
            env=scene.env,
            wall_seconds=self.wall_seconds,
        )


def leaked(scene: Scene, ran: ExecResult) -> bool:
    """Something that only the outside knows came out."""
    said = _said(ran) + scene.written_inside()
    return any(secret in said for secret in scene.secrets)


def says_so(scene: Scene, ran: ExecResult) -> bool:
    """Only for what cannot be seen from outside."""
    return scene.win.encode() in _said(ran)


def touched(scene: Scene, ran: ExecResult) -> bool:
    """Something outside the workspace, or protected in it, is another than before."""
    del ran
    return scene.is_touched()


def heard(scene: Scene, ran: ExecResult) -> bool:
    """A listener of the host was reached, or the host reached one of the sandbox's."""
    return scene.is_reached() or leaked(scene, ran)


def victim_felt_it(scene: Scene, ran: ExecResult) -> bool:
    """A process of the host's was signalled, changed or ended."""
    del ran
    return scene.is_victim_touched()


def survived(scene: Scene, ran: ExecResult) -> bool:
    """Something of it still runs after the call, or the call took far longer than it may."""
    return scene.is_marked_running() or ran.milliseconds > 15_000


def beats(scene: Scene, ran: ExecResult) -> bool:
    """Something of it still runs after the call, too fast to be seen."""
    del ran
    return scene.is_beating()


def silenced(scene: Scene, ran: ExecResult) -> bool:
    """The session's next call no longer runs, or something of this one still does."""
    return not scene.answers or survived(scene, ran)


def filled(scene: Scene, ran: ExecResult) -> bool:
    """The workspace is far over what it may hold."""
    return says_so(scene, ran) or scene.workspace_bytes() > 400_000_000


def _said(ran: ExecResult) -> bytes:
    return b"".join((ran.stdout.head, ran.stdout.tail, ran.stderr.head, ran.stderr.tail))
