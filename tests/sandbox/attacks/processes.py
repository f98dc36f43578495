"""Attempts on the host's processes, on what serves the sandbox, and to outlive the call."""

from tests.sandbox.attacks.attack import (
    Attack,
    beats,
    says_so,
    silenced,
    survived,
    touched,
    victim_felt_it,
)

_ONCE_THERE = (
    'for _ in {1..500}; do grep -qa "^$MARK" /proc/[0-9]*/cmdline && break; sleep 0.01; done; '
    "exit 0"
)
"""Ends when the other is what it is to be: before that there is nothing to outlive it."""

# Leaves a process under the attack's mark; `mark` is in its command line and environment.
_STAY = 'exec -a "$MARK" sleep 60'

PROCESSES = (
    Attack(
        name="kill-a-process-of-the-host",
        tries="SIGKILL",
        bash='kill -9 "$VICTIM"',
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="signal-everybody",
        tries="a signal to all processes; one that harms none",
        python="os.kill(-1, signal.SIGWINCH)",
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="signal-by-group",
        tries="a signal to the process groups of the harness",
        python="""
for pid in (int(E["VICTIM"]), int(E["HARNESS"])):
    each(lambda: os.killpg(os.getpgid(pid), signal.SIGWINCH))
each(lambda: os.kill(0, signal.SIGURG))
""",
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="signal-by-pidfd",
        tries="a signal by descriptor",
        python="""
pidfd = call("pidfd_open", int(E["VICTIM"]), 0)
call("pidfd_send_signal", pidfd, int(signal.SIGURG), None, 0)
""",
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="signal-by-thread",
        tries="a signal to a thread",
        python='call("tgkill", int(E["VICTIM"]), int(E["VICTIM"]), int(signal.SIGURG))',
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="signal-by-owner",
        tries="have the kernel send one, for a file that is ready",
        python="""
near, far = socket.socketpair()
fcntl.fcntl(near, fcntl.F_SETOWN, int(E["VICTIM"]))
fcntl.fcntl(near, 10, int(signal.SIGURG))
fcntl.fcntl(near, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
far.send(b"x"); time.sleep(0.1)
""",
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="limits-of-the-victim",
        tries="other resource limits for a process of the host",
        python='resource.prlimit(int(E["VICTIM"]), resource.RLIMIT_NOFILE, (64, 64))',
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="priority-of-the-victim",
        tries="slow a process of the host down",
        python='os.setpriority(os.PRIO_PROCESS, int(E["VICTIM"]), 7)',
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="affinity-of-the-victim",
        tries="drive a process of the host off its processors",
        python="""
mine = sorted(os.sched_getaffinity(0))
if len(mine) > 1: os.sched_setaffinity(int(E["VICTIM"]), mine[:1])
""",
        won=victim_felt_it,
    ),
    Attack(
        name="offer-the-victim-to-the-oom-killer",
        tries="make the kernel choose it when memory is short",
        bash='echo 999 > "/proc/$VICTIM/oom_score_adj"',
        won=victim_felt_it,
        harmless=True,
    ),
    Attack(
        name="debug-the-victim",
        tries="ptrace",
        python="""
if libc.ptrace(0x4206, int(E["VICTIM"]), None, None) == 0: win()
""",
        won=says_so,
        harmless=True,
    ),
    Attack(
        name="debug-the-agent",
        tries="ptrace what serves the sandbox",
        python="""
for pid in {1, os.getppid()}:
    win_if(libc.ptrace(0x4206, pid, None, None) == 0)
""",
        won=says_so,
        harmless=True,
    ),
    Attack(
        name="overwrite-the-victim",
        tries="write into the memory of a process of the host",
        python="""
mine = ctypes.create_string_buffer(b"0")
class Part(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
local, remote = Part(ctypes.addressof(mine), 1), Part(int(E["HELD_AT"]), 1)
win_if(call("process_vm_writev", int(E["VICTIM"]), ctypes.byref(local), ctypes.c_ulong(1),
       ctypes.byref(remote), ctypes.c_ulong(1), ctypes.c_ulong(0)) == 1)
""",
        won=says_so,
        harmless=True,
    ),
    Attack(
        name="kill-the-agent",
        tries="end what serves the sandbox",
        bash="kill -9 1 $PPID; kill -TERM 1 $PPID; sleep 0.2",
        won=silenced,
    ),
    Attack(
        name="stop-the-agent",
        tries="halt what serves the sandbox",
        bash="kill -STOP 1 $PPID; sleep 0.2",
        won=silenced,
    ),
    Attack(
        name="kill-everything-inside",
        tries="take the agent down with all the rest",
        python="""
if os.getuid() != 0:  # no sandbox leaves us root; where there is none, this would be the end
    os.kill(-1, signal.SIGSTOP)
""",
        won=silenced,
    ),
    Attack(
        name="garble-the-agent",
        tries="write nonsense to every descriptor there is",
        python="""
for fd in (0, *range(3, 1024)):
    each(lambda: os.write(fd, b"\\0" * 64 + b'{"status": 0}\\n'))
""",
        won=silenced,
    ),
    Attack(
        name="outlive-by-background",
        tries="a job in the background",
        bash=f"({_STAY}) & exit 0",
        won=survived,
        harmless=True,
    ),
    Attack(
        name="outlive-by-nohup",
        tries="nohup, with no stream left open",
        bash="nohup bash -c 'exec -a \"$MARK\" sleep 60' >/dev/null 2>&1 </dev/null & "
        + _ONCE_THERE,
        won=survived,
        harmless=True,
    ),
    Attack(
        name="outlive-by-setsid",
        tries="a session of its own",
        bash="setsid -f bash -c 'exec -a \"$MARK\" sleep 60' >/dev/null 2>&1 </dev/null; "
        + _ONCE_THERE,
        won=survived,
        harmless=True,
    ),
    Attack(
        name="outlive-by-double-fork",
        tries="no parent left that could be asked",
        python="""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        os.execvp("sleep", [E["MARK"], "60"])
    os._exit(0)
""",
        won=survived,
        harmless=True,
    ),
    Attack(
        name="outlive-by-own-reaper",
        tries="adopt one's orphans, so that nobody else gets them",
        python="""
if os.fork() == 0:
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        if os.fork() == 0: os.execvp("sleep", [E["MARK"], "60"])
        os._exit(0)
    for fd in range(3): os.close(fd)
    time.sleep(60)
""",
        won=survived,
        harmless=True,
    ),
    Attack(
        name="outlive-by-deafness",
        tries="ignore every signal that can be ignored",
        bash="trap '' HUP INT TERM QUIT USR1 USR2 ALRM PIPE; (while :; do sleep 1; done) & exit 0",
        won=survived,
        harmless=True,
    ),
    Attack(
        name="outlive-by-being-stopped",
        tries="be halted when the signal comes",
        bash="setsid bash -c 'kill -STOP $$; exec -a \"$MARK\" sleep 60' >/dev/null 2>&1 & exit 0",
        won=survived,
        harmless=True,
    ),
    Attack(
        name="outlive-by-running",
        tries="fork and exit, again and again, faster than anybody can kill",
        python="""
for _ in range(4):
    if os.fork() == 0:
        os.setsid(); end = time.monotonic() + 4
        beat = os.open("beat", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        for fd in range(3): os.close(fd)
        while time.monotonic() < end:
            if os.fork(): os._exit(0)
            os.write(beat, b"x")
        os._exit(0)
time.sleep(0.2)
""",
        won=beats,
        harmless=True,
    ),
    Attack(
        name="outlive-without-a-name",
        tries="wipe the environment that one could be found by",
        bash='env -i setsid -f bash -c "exec -a $MARK sleep 60" >/dev/null 2>&1 </dev/null',
        won=survived,
        harmless=True,
    ),
    Attack(
        name="fork-bomb",
        tries="fill the process table",
        bash="bomb() { bomb | bomb & }; bomb; sleep 1",
        won=silenced,
        wall_seconds=2.0,
    ),
    Attack(
        name="fork-without-end",
        tries="a thousand processes at once",
        python="""
count = 0
try:
    for count in range(1000):
        if os.fork() == 0: time.sleep(30); os._exit(0)
except OSError: pass
win_if(count >= 999)
""",
        won=says_so,
    ),
    Attack(
        name="threads-without-end",
        tries="two thousand threads at once",
        python="""
import threading
count = 0
try:
    for count in range(2000): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
except RuntimeError: pass
win_if(count >= 1999)
sys.stdout.flush(); os._exit(0)
""",
        won=says_so,
    ),
    Attack(
        name="type-into-the-terminal",
        tries="put characters into the operator's input",
        python="""
for fd in (0, 1, 2):
    each(lambda: (fcntl.ioctl(fd, 0x5412, b"x"), win()))
each(lambda: (fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x"), win()))
# A filter that compares all 64 bits lets a command with the high half set through.
each(lambda: win_if(libc.ioctl(0, ctypes.c_ulong(0x100005412), b"x") == 0))
""",
        won=says_so,
    ),
    Attack(
        name="terminals-of-others",
        tries="write to the terminals of the machine",
        python="""
import glob
for path in glob.glob("/dev/pts/[0-9]*") + ["/dev/tty", "/dev/tty0", "/dev/tty1", "/dev/console"]:
    each(lambda: win_if(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK) >= 0))
""",
        won=says_so,
    ),
    Attack(
        name="crontab",
        tries="have somebody else start it later",
        bash='echo "* * * * * true # $MARK" | crontab - && crontab -r && echo "$WIN";'
        ' mkdir -p "$REAL_HOME/.config/systemd" ',
        won=lambda scene, ran: says_so(scene, ran) or touched(scene, ran),
    ),
)
