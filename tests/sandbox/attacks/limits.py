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
    # a gigabyte in one process
    Attack("memory", says_so, python="held = [bytearray(b'x' * 2**24) for _ in range(64)]; win()"),
    # ten processes with a hundred megabytes each
    Attack(
        "memory-by-many",
        says_so,
        python="""
ready, done = os.pipe()
for _ in range(10):
    if os.fork() == 0:
        held = bytearray(b"x" * 100_000_000); os.write(done, b"x"); time.sleep(30); os._exit(0)
count = 0
while count < 10: count += len(os.read(ready, 1))
time.sleep(1); win()
""",
        wall_seconds=15.0,
    ),
    # a gigabyte in a shared mapping
    Attack(
        "memory-by-mapping",
        says_so,
        python="""
held = mmap.mmap(-1, 2**30)
for at in range(0, 2**30, 4096): held[at] = 1
time.sleep(1); win()
""",
        wall_seconds=15.0,
    ),
    # a gigabyte in files that have no name and belong to no process' size
    Attack(
        "memory-by-nameless-files",
        says_so,
        python="""
block = b"x" * 2**20
for each_one in range(40):
    fd = call("memfd_create", b"x", 0)
    if fd < 0: sys.exit()
    for _ in range(25): os.write(fd, block)
time.sleep(1); win()
""",
        wall_seconds=15.0,
    ),
    # a gigabyte in System V segments that nobody is attached to
    Attack(
        "memory-by-segments",
        says_so,
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
        wall_seconds=15.0,
    ),
    # half a gigabyte in /dev/shm
    Attack(
        "fill-shared-memory",
        says_so,
        bash="for i in 1 2 3 4 5 6 7 8; do head -c 60M /dev/zero > /dev/shm/$MARK$i || exit; done;"
        ' sleep 1; echo "$WIN"',
        wall_seconds=15.0,
    ),
    # half a gigabyte of temporary files
    Attack(
        "fill-tmp",
        says_so,
        bash="at=${TMPDIR:-/tmp}; for i in 1 2 3 4 5 6 7 8; do head -c 60M /dev/zero > $at/$MARK$i"
        ' || exit; done; sleep 1; echo "$WIN"',
        wall_seconds=15.0,
    ),
    # files where devices are
    Attack(
        "fill-devices",
        says_so,
        bash="for at in /dev /run / /mnt /proc /sys; do head -c 60M /dev/zero > $at/$MARK"
        ' && echo "$WIN"; done',
    ),
    # a file of half a gigabyte
    Attack(
        "one-large-file",
        filled,
        bash="trap '' XFSZ; head -c 500M /dev/zero > large && echo \"$WIN\"",
        wall_seconds=15.0,
    ),
    # a file that seems to be of a hundred gigabytes
    Attack(
        "one-sparse-file", says_so, bash='truncate -s 100G sparse && echo "$WIN"', harmless=True
    ),
    # half a gigabyte in files of two megabytes
    Attack(
        "many-files",
        filled,
        python="""
block = b"x" * 2**21
for number in range(256):
    with open(f"file{number}", "wb") as file: file.write(block)
    time.sleep(0.005)
win()
""",
        wall_seconds=15.0,
    ),
    # folders so deep that nobody can walk them
    Attack(
        "deep-folders",
        silenced,
        python="""
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
""",
    ),
    # five thousand open files
    Attack(
        "open-files",
        says_so,
        python="""
held = []
try:
    while len(held) < 5000: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
win_if(len(held) >= 5000)
""",
    ),
    # more output than anybody can keep
    Attack(
        "flood-of-output",
        _flooded,
        bash='yes | head -c 1000000000; echo "$WIN" >&2',
        wall_seconds=15.0,
    ),
    # the same on the other stream
    Attack(
        "flood-of-errors",
        _flooded,
        bash='yes | head -c 1000000000 >&2; echo "$WIN"',
        wall_seconds=15.0,
    ),
    # never end
    Attack("burn-past-the-wall", survived, python="while True: pass", wall_seconds=0.5),
    # never end, and hear no signal
    Attack(
        "deaf-past-the-wall",
        survived,
        bash="trap '' HUP INT TERM QUIT; while :; do sleep 1; done",
        wall_seconds=0.5,
    ),
    # be halted when time is up
    Attack("stopped-past-the-wall", survived, bash="kill -STOP $$; sleep 60", wall_seconds=0.5),
    # end, and leave a stream open so that reading it never ends
    Attack(
        "held-open-past-the-wall",
        survived,
        bash="setsid sleep 60 & setsid sleep 60 >/dev/null & exit 0",
        wall_seconds=1.0,
    ),
    # get back what was taken
    Attack(
        "raise-limits",
        says_so,
        python="""
for name in ("NPROC", "NOFILE", "FSIZE", "DATA", "CORE"):
    limit = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(limit)
    each(lambda: (resource.setrlimit(limit, (-1, -1)), win()) if hard != -1 else win())
""",
    ),
    # a priority before everything else on the machine
    Attack(
        "real-time",
        says_so,
        python="""
each(lambda: (os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), win()),
     lambda: (os.setpriority(os.PRIO_PROCESS, 0, -10), win()))
""",
    ),
    # memory that cannot be paged out, a gigabyte of it
    Attack(
        "lock-memory",
        says_so,
        python="""
held = mmap.mmap(-1, 2**29)
at = ctypes.addressof(ctypes.c_char.from_buffer(held))
win_if(libc.mlock(ctypes.c_void_p(at), ctypes.c_size_t(2**29)) == 0)
""",
    ),
)
