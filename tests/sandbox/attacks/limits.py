"""Attempts to take more than is given: time, memory, processes, files, disk, output.

They are run under the limits of `siege.LIMITS`, and take several times what those give.
"""

from tests.sandbox.attacks.attack import Attack, filled, says_so, silenced, survived
from tests.sandbox.attacks.attack_targets import Scene

from mainspring.core.ports import ExecResult


def _flooded(scene: Scene, ran: ExecResult) -> bool:
    kept = (*(ran.stdout.head, ran.stdout.tail), *(ran.stderr.head, ran.stderr.tail))
    return says_so(scene, ran) or sum(map(len, kept)) > 1_000_000


LIMITS = (
    Attack(
        name="memory",
        tries="a gigabyte in one process",
        python="held = [bytearray(b'x' * 2**24) for _ in range(64)]; win()",
        won=says_so,
    ),
    Attack(
        name="memory-by-many",
        tries="ten processes with a hundred megabytes each",
        python="""
ready, done = os.pipe()
for _ in range(10):
    if os.fork() == 0:
        held = bytearray(b"x" * 100_000_000); os.write(done, b"x"); time.sleep(30); os._exit(0)
count = 0
while count < 10: count += len(os.read(ready, 1))
time.sleep(1); win()
""",
        won=says_so,
        wall_seconds=15.0,
    ),
    Attack(
        name="memory-by-mapping",
        tries="a gigabyte in a shared mapping",
        python="""
held = mmap.mmap(-1, 2**30)
for at in range(0, 2**30, 4096): held[at] = 1
time.sleep(1); win()
""",
        won=says_so,
        wall_seconds=15.0,
    ),
    Attack(
        name="memory-by-nameless-files",
        tries="a gigabyte in files that have no name and belong to no process' size",
        python="""
block = b"x" * 2**20
for each_one in range(40):
    fd = call("memfd_create", b"x", 0)
    if fd < 0: sys.exit()
    for _ in range(25): os.write(fd, block)
time.sleep(1); win()
""",
        won=says_so,
        wall_seconds=15.0,
    ),
    Attack(
        name="memory-by-segments",
        tries="a gigabyte in System V segments that nobody is attached to",
        python="""
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
size = 2**25
for _ in range(32):
    segment = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
    if segment < 0: sys.exit()
    at = libc.shmat(segment, None, 0)
    ctypes.memset(at, 1, size); libc.shmdt(at)
time.sleep(1); win()
""",
        won=says_so,
        wall_seconds=15.0,
    ),
    Attack(
        name="fill-shared-memory",
        tries="half a gigabyte in /dev/shm",
        bash="for i in 1 2 3 4 5 6 7 8; do head -c 60M /dev/zero > /dev/shm/$MARK$i || exit; done;"
        ' sleep 1; echo "$WIN"',
        won=says_so,
        wall_seconds=15.0,
    ),
    Attack(
        name="fill-tmp",
        tries="half a gigabyte of temporary files",
        bash="at=${TMPDIR:-/tmp}; for i in 1 2 3 4 5 6 7 8; do head -c 60M /dev/zero > $at/$MARK$i"
        ' || exit; done; sleep 1; echo "$WIN"',
        won=says_so,
        wall_seconds=15.0,
    ),
    Attack(
        name="fill-devices",
        tries="files where devices are",
        bash="for at in /dev /run / /mnt /proc /sys; do head -c 60M /dev/zero > $at/$MARK"
        ' && echo "$WIN"; done',
        won=says_so,
    ),
    Attack(
        name="one-large-file",
        tries="a file of half a gigabyte",
        bash="trap '' XFSZ; head -c 500M /dev/zero > large && echo \"$WIN\"",
        won=filled,
        wall_seconds=15.0,
    ),
    Attack(
        name="one-sparse-file",
        tries="a file that seems to be of a hundred gigabytes",
        bash='truncate -s 100G sparse && echo "$WIN"',
        won=says_so,
        harmless=True,
    ),
    Attack(
        name="many-files",
        tries="half a gigabyte in files of two megabytes",
        python="""
block = b"x" * 2**21
for number in range(256):
    with open(f"file{number}", "wb") as file: file.write(block)
    time.sleep(0.005)
win()
""",
        won=filled,
        wall_seconds=15.0,
    ),
    Attack(
        name="deep-folders",
        tries="folders so deep that nobody can walk them",
        python="""
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
""",
        won=silenced,
    ),
    Attack(
        name="open-files",
        tries="five thousand open files",
        python="""
held = []
try:
    while len(held) < 5000: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
win_if(len(held) >= 5000)
""",
        won=says_so,
    ),
    Attack(
        name="flood-of-output",
        tries="more output than anybody can keep",
        bash='yes | head -c 1000000000; echo "$WIN" >&2',
        won=_flooded,
        wall_seconds=15.0,
    ),
    Attack(
        name="flood-of-errors",
        tries="the same on the other stream",
        bash='yes | head -c 1000000000 >&2; echo "$WIN"',
        won=_flooded,
        wall_seconds=15.0,
    ),
    Attack(
        name="burn-past-the-wall",
        tries="never end",
        python="while True: pass",
        won=survived,
        wall_seconds=0.5,
    ),
    Attack(
        name="deaf-past-the-wall",
        tries="never end, and hear no signal",
        bash="trap '' HUP INT TERM QUIT; while :; do sleep 1; done",
        won=survived,
        wall_seconds=0.5,
    ),
    Attack(
        name="stopped-past-the-wall",
        tries="be halted when time is up",
        bash="kill -STOP $$; sleep 60",
        won=survived,
        wall_seconds=0.5,
    ),
    Attack(
        name="held-open-past-the-wall",
        tries="end, and leave a stream open so that reading it never ends",
        bash="setsid sleep 60 & setsid sleep 60 >/dev/null & exit 0",
        won=survived,
        wall_seconds=1.0,
    ),
    Attack(
        name="raise-limits",
        tries="get back what was taken",
        python="""
for name in ("NPROC", "NOFILE", "FSIZE", "DATA", "CORE"):
    limit = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(limit)
    each(lambda: (resource.setrlimit(limit, (-1, -1)), win()) if hard != -1 else win())
""",
        won=says_so,
    ),
    Attack(
        name="real-time",
        tries="a priority before everything else on the machine",
        python="""
each(lambda: (os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), win()),
     lambda: (os.setpriority(os.PRIO_PROCESS, 0, -10), win()))
""",
        won=says_so,
    ),
    Attack(
        name="lock-memory",
        tries="memory that cannot be paged out, a gigabyte of it",
        python="""
held = mmap.mmap(-1, 2**29)
at = ctypes.addressof(ctypes.c_char.from_buffer(held))
win_if(libc.mlock(ctypes.c_void_p(at), ctypes.c_size_t(2**29)) == 0)
""",
        won=says_so,
    ),
)
