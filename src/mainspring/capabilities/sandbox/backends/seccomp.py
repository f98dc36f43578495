"""The system calls that programs in a sandbox must not use, as a BPF program.

It is written by hand: no library is needed, and everything that is refused can be read here.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping
from functools import cache

from msgspec import Struct

from mainspring.core.errors import SandboxFailed

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16  # linux/socket.h
ORDINARY_FAMILIES = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)

_LAST_KNOWN = 462
"""mseal, Linux 6.10. Newer calls have not been reviewed, so they do not exist inside."""

_NEW_NAMESPACES = 0x7E020000  # linux/sched.h: all CLONE_NEW* but CLONE_NEWTIME
_TERMINAL_INJECTIONS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_SHARED_MEMORY_BYTES = 64 * 1024
"""The size of one System V segment. Memory in a segment that no process has attached is not counted
for any process."""


class _Machine(Struct, frozen=True):
    audit_arch: int
    has_x32: bool
    calls: Mapping[str, int]
    """Calls whose numbers differ between architectures."""


_SINCE_5_1 = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "openat2": 437,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "fchmodat2": 452,
    "statmount": 457,
    "listmount": 458,
}
"""The same numbers on every architecture."""

_X86_64 = _Machine(
    0xC000003E,
    has_x32=True,
    calls={
        **dict(open=2, ioctl=16, shmget=29, socket=41, socketpair=53, clone=56, semget=64),
        **dict(msgget=68, creat=85, chmod=90, fchmod=91, ptrace=101, syslog=103, mknod=133),
        **dict(
            uselib=134,
            personality=135,
            memfd_create=319,
            mq_open=240,
            openat=257,
            mknodat=259,
            fchmodat=268,
            prlimit64=302,
        ),
        **dict(vhangup=153, modify_ldt=154, pivot_root=155, _sysctl=156, adjtimex=159, chroot=161),
        **dict(acct=163, settimeofday=164, mount=165, umount2=166, swapon=167, swapoff=168),
        **dict(reboot=169, sethostname=170, setdomainname=171, iopl=172, ioperm=173),
        **dict(create_module=174, init_module=175, delete_module=176, quotactl=179),
        **dict(lookup_dcookie=212, clock_settime=227, kexec_load=246, add_key=248),
        **dict(request_key=249, keyctl=250, migrate_pages=256, unshare=272, move_pages=279),
        **dict(perf_event_open=298, fanotify_init=300, fanotify_mark=301, name_to_handle_at=303),
        **dict(open_by_handle_at=304, clock_adjtime=305, setns=308, process_vm_readv=310),
        **dict(process_vm_writev=311, kcmp=312, finit_module=313, kexec_file_load=320),
        **dict(bpf=321, userfaultfd=323),
    },
)
_AARCH64 = _Machine(
    0xC00000B7,
    has_x32=False,
    calls={
        **dict(lookup_dcookie=18, ioctl=29, mknodat=33, umount2=39, mount=40, pivot_root=41),
        **dict(chroot=51, fchmod=52, fchmodat=53, openat=56, mq_open=180, msgget=186),
        **dict(personality=92, semget=190, socketpair=199, prlimit64=261, memfd_create=279),
        **dict(vhangup=58, quotactl=60, acct=89, unshare=97, kexec_load=104, init_module=105),
        **dict(delete_module=106, clock_settime=112, syslog=116, ptrace=117, reboot=142),
        **dict(sethostname=161, setdomainname=162, settimeofday=170, adjtimex=171, shmget=194),
        **dict(socket=198, add_key=217, request_key=218, keyctl=219, clone=220, swapon=224),
        **dict(swapoff=225, migrate_pages=238, move_pages=239, perf_event_open=241),
        **dict(fanotify_init=262, fanotify_mark=263, name_to_handle_at=264),
        **dict(open_by_handle_at=265, clock_adjtime=266, setns=268, process_vm_readv=270),
        **dict(process_vm_writev=271, kcmp=272, finit_module=273, bpf=280, userfaultfd=282),
        **dict(kexec_file_load=294),
    },
)
MACHINES: Mapping[str, _Machine] = {"x86_64": _X86_64, "aarch64": _AARCH64}
"""By `os.uname().machine`."""

# When libc gets ENOSYS, it uses the older call, whose arguments the filter can check. The memory of
# a memfd is not counted for any process; programs can use /dev/shm, which is small.
_ABSENT = frozenset(
    (
        *("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"),
        *("fchmodat2", "memfd_create", "openat2"),
    )
)
_OF_THE_HOST = frozenset(("mq_open", "msgget", "prlimit64", "semget", "shmget", "socketpair"))
"""Calls that reach beyond the sandbox if it has no namespaces of its own."""
_MODE_AT = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "creat": 1, "mknod": 1, "mknodat": 2}
_FLAGS_AT = {"open": 1, "openat": 2}
_LOOKED_AT = frozenset(
    ("clone", "ioctl", "personality", "shmget", "socket", *_OF_THE_HOST, *_MODE_AT, *_FLAGS_AT)
)
_OTHERS_RIGHTS = 0o6000
"""Setuid and setgid: a program with these bits runs with the rights of its owner, perhaps root."""
_MAKES_A_FILE = 0x400040  # O_CREAT, O_TMPFILE
_DATAGRAMS = 2  # linux/net.h: SOCK_DGRAM

# linux/bpf_common.h: the codes of instructions.
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_AND = 0x54  # linux/bpf_common.h: BPF_ALU | BPF_AND | BPF_K
_NUMBER, _ARCH = 0, 4  # offsets in `struct seccomp_data`
# linux/seccomp.h: SECCOMP_RET_ALLOW, _KILL_PROCESS, _ERRNO.
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSED, _NOT_THERE = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS


@cache
def seccomp_program(
    machine: str, families: tuple[int, ...] = ORDINARY_FAMILIES, *, has_namespaces: bool = True
) -> bytes:
    """The filter for `machine`, which allows sockets of these families only.

    Raises:
        SandboxFailed: there is no list for this machine.
    """
    made_for = MACHINES.get(machine)
    if made_for is None:
        raise SandboxFailed(f"there is no seccomp filter for {machine}: use x86_64 or aarch64")
    numbers = {**made_for.calls, **_SINCE_5_1}
    steps = [_step(_LOAD, _ARCH), _step(_EQUAL, made_for.audit_arch, 1, 0), _step(_RETURN, _KILL)]
    steps.append(_step(_LOAD, _NUMBER))
    if made_for.has_x32:
        steps += _verdict_if(_AT_LEAST, 0x40000000, _KILL)
    steps += _verdict_if(_GREATER, _LAST_KNOWN, _NOT_THERE)
    for name, number in sorted(numbers.items()):
        if name not in _LOOKED_AT:
            steps += _verdict_if(_EQUAL, number, _NOT_THERE if name in _ABSENT else _REFUSED)
    steps += _only_for(numbers["clone"], [*_argument(0), *_verdict_if(_ANY_BIT, _NEW_NAMESPACES)])
    injections = [step for code in _TERMINAL_INJECTIONS for step in _verdict_if(_EQUAL, code)]
    steps += _only_for(numbers["ioctl"], [*_argument(1), *injections])
    if has_namespaces:
        steps += _only_for(numbers["shmget"], _small_segments())
    else:
        steps += _nothing_of_the_host(numbers)
    steps += _only_for(numbers["personality"], _ordinary_personalities())
    steps += _no_rights_of_others(numbers)
    steps += _only_for(numbers["socket"], _sockets(families))
    steps.append(_step(_RETURN, _ALLOW))
    return b"".join(steps)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _verdict_if(test: int, value: int, verdict: int = _REFUSED) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, verdict)]


def _only_for(number: int, steps: list[bytes]) -> list[bytes]:
    """Steps for one system call, which is allowed if none of them returns a verdict."""
    whole = [*steps, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(whole)), *whole]


def _argument(index: int, *, high: bool = False) -> list[bytes]:
    # both machines are little-endian
    return [_step(_LOAD, 16 + 8 * index + (4 if high else 0))]


def _small_segments() -> list[bytes]:
    return [
        *_argument(1, high=True),
        *_verdict_if(_GREATER, 0),
        *_argument(1),
        *_verdict_if(_GREATER, _SHARED_MEMORY_BYTES),
    ]


def _nothing_of_the_host(numbers: Mapping[str, int]) -> list[bytes]:
    """Refuse shared memory, queues and semaphores, limits of other processes, and datagram socket
    pairs: one end could send to any socket with a name."""
    steps: list[bytes] = []
    for name in ("mq_open", "msgget", "semget", "shmget"):
        steps += _verdict_if(_EQUAL, numbers[name])
    steps += _only_for(numbers["prlimit64"], [*_argument(0), *_verdict_if(_GREATER, 0)])
    kind = [*_argument(1), _step(_AND, 0xF), *_verdict_if(_EQUAL, _DATAGRAMS)]
    return steps + _only_for(numbers["socketpair"], kind)


def _ordinary_personalities() -> list[bytes]:
    """Allow queries and the usual personalities, but not those that disable address
    randomization."""
    steps = _argument(0)
    for usual in (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF):
        steps += _verdict_if(_EQUAL, usual, _ALLOW)
    return [*steps, _step(_RETURN, _REFUSED)]


def _no_rights_of_others(numbers: Mapping[str, int]) -> list[bytes]:
    steps: list[bytes] = []
    for name, index in _MODE_AT.items():
        if name in numbers:
            steps += _only_for(
                numbers[name], [*_argument(index), *_verdict_if(_ANY_BIT, _OTHERS_RIGHTS)]
            )
    for name, index in _FLAGS_AT.items():
        if name in numbers:
            steps += _only_for(numbers[name], _made_without_rights(index))
    return steps


def _made_without_rights(flags_at: int) -> list[bytes]:
    """Check the mode only if the call creates a file; otherwise it may be anything."""
    return [
        *_argument(flags_at),
        _step(_ANY_BIT, _MAKES_A_FILE, 1, 0),
        _step(_RETURN, _ALLOW),
        *_argument(flags_at + 1),
        *_verdict_if(_ANY_BIT, _OTHERS_RIGHTS),
    ]


def _sockets(families: Iterable[int]) -> list[bytes]:
    """Allow only these families: a network namespace restricts neither vsock, which reaches the
    hypervisor, nor AF_ALG."""
    steps = _argument(0)
    for family in families:
        if family == AF_NETLINK:  # only routing, with which libc lists interfaces
            routing = [*_argument(2), *_verdict_if(_GREATER, 0), _step(_RETURN, _ALLOW)]
            steps += [_step(_EQUAL, family, 0, len(routing)), *routing]
        else:
            steps += [_step(_EQUAL, family, 0, 1), _step(_RETURN, _ALLOW)]
    return [*steps, _step(_RETURN, _REFUSED)]
