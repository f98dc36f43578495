"""The filter is tried where it counts: in a sandbox, by a program that makes the calls."""

import errno
import json
import os
import struct

import pytest

from mainspring.capabilities.sandbox.backend import Backend, SandboxSpec
from mainspring.capabilities.sandbox.backends.seccomp import AF_UNIX, MACHINES, seccomp_program
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.ports import ExecRequest

CALL = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = []
for number, *arguments in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(each) for each in arguments))
    answers.append(ctypes.get_errno() if result < 0 else 0)
print(json.dumps(answers))
"""
REFUSED = """
    mount umount2 pivot_root chroot unshare setns ptrace process_vm_readv process_vm_writev bpf
    perf_event_open userfaultfd keyctl add_key request_key init_module finit_module delete_module
    kexec_load kexec_file_load name_to_handle_at open_by_handle_at settimeofday clock_settime
    clock_adjtime adjtimex swapon swapoff reboot sethostname setdomainname syslog acct quotactl
    kcmp fanotify_init iopl ioperm
"""
NEWUSER, NEWNET = 0x10000000, 0x40000000
x86_only = pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")


@pytest.fixture
def if_namespaces(backend: Backend) -> int:
    """The answer to calls that only namespaces make harmless: shared memory, sockets."""
    return 0 if backend.name == "bubblewrap" else errno.EPERM


async def call_errors(sandbox: KeeperSandbox, *calls: tuple[int, ...]) -> list[int]:
    ran = await sandbox.run(
        ExecRequest(key="calls", argv=("python3", "-I", "-S", "-c", CALL, json.dumps(calls)))
    )
    assert ran.status == 0, ran.stderr.head
    return json.loads(ran.stdout.head)


@x86_only
async def test_system_calls_that_change_the_machine_are_refused(sandbox: KeeperSandbox):
    numbers = [MACHINES["x86_64"].calls[name] for name in REFUSED.split()]
    numbers += [428, 429, 430, 431, 432, 433, 438, 442, 443, 447, 457, 458]  # mounts and the like
    found = await call_errors(sandbox, *((number, 0, 0, 0, 0, 0) for number in numbers))
    assert found == [errno.EPERM] * len(numbers)


@x86_only
async def test_setuid_and_setgid_bits_are_refused(sandbox: KeeperSandbox, site: SandboxSpec):
    made = await sandbox.run(
        ExecRequest(
            key="k", argv=("sh", "-c", "cp /bin/true f; chmod 755 f; chmod u+s f; chmod 2755 f")
        )
    )
    assert made.stderr.head.count(b"Operation not permitted") == 2
    assert (site.workspace / "f").stat().st_mode & 0o7777 == 0o755


@x86_only
async def test_unknown_system_calls_do_not_exist(sandbox: KeeperSandbox):
    unknown = [(425,), (426,), (427,), (435,), (463,), (467,), (500,), (1000,)]
    assert await call_errors(sandbox, *unknown) == [errno.ENOSYS] * len(unknown)


@x86_only
async def test_namespaces_and_terminal_injection_are_refused(
    sandbox: KeeperSandbox, if_namespaces: int
):
    clone, ioctl, shmget = 56, 16, 29
    calls = [(clone, NEWUSER | 17), (clone, NEWNET), (ioctl, 0, 0x5412), (ioctl, 0, 0x541C)]
    calls += [(ioctl, 0, 0x5412 | 1 << 32), (shmget, 0, 1 << 20), (shmget, 0, 1 << 33)]
    assert await call_errors(sandbox, *calls) == [errno.EPERM] * len(calls)
    # what is not refused gets its answer from the system
    allowed = await call_errors_as_other_user(
        sandbox, (ioctl, 0, 0x5401), (shmget, 0, 4096, 0o1600)
    )
    assert allowed == [errno.ENOTTY, if_namespaces]


async def call_errors_as_other_user(sandbox: KeeperSandbox, *calls: tuple[int, ...]) -> list[int]:
    await sandbox.forget("calls")
    return await call_errors(sandbox, *calls)


@x86_only
async def test_only_ordinary_socket_families_are_allowed(
    sandbox: KeeperSandbox, if_namespaces: int
):
    stream, raw = 1, 3
    ordinary = [(41, family, stream, 0) for family in (1, 2, 10)] + [(41, 16, raw, 0)]
    others = [(41, family, stream, 0) for family in (3, 17, 29, 31, 38, 40, 44)]
    others += [(41, 16, raw, 9), (41, 16, raw, 12)]  # netlink's audit, netfilter
    found = await call_errors(sandbox, *ordinary, *others)
    assert found == [if_namespaces] * len(ordinary) + [errno.EPERM] * len(others)


@x86_only
async def test_system_calls_of_another_architecture_kill_the_program(sandbox: KeeperSandbox):
    x32 = "import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39)"
    ran = await sandbox.run(ExecRequest(key="k", argv=("python3", "-I", "-S", "-c", x32)))
    assert ran.status == 128 + 31  # SIGSYS


@pytest.mark.parametrize("machine", list(MACHINES))
@pytest.mark.parametrize("families", [(), (AF_UNIX,), (1, 2, 10, 16)])
def test_every_jump_stays_in_the_program_and_every_path_ends(
    machine: str, families: tuple[int, ...]
):
    program = seccomp_program(machine, families)
    steps = list(struct.iter_unpack("=HBBI", program))
    for at, (code, if_true, if_false, _) in enumerate(steps):
        if code & 7 == 5:
            assert at + 1 + max(if_true, if_false) < len(steps)
    assert steps[-1][0] == 6
    assert len(steps) < 4096


def test_the_same_calls_are_refused_on_both_architectures():
    of_x86_only = {"uselib", "modify_ldt", "_sysctl", "iopl", "ioperm", "create_module"}
    replaced_by_others = {"open", "creat", "chmod", "mknod"}
    difference = set(MACHINES["x86_64"].calls) - set(MACHINES["aarch64"].calls)
    assert difference == of_x86_only | replaced_by_others
