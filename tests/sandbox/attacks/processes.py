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
    # SIGKILL
    Attack("kill-a-process-of-the-host", victim_felt_it, bash='kill -9 "$VICTIM"', harmless=True),
    # a signal to all processes; one that harms none
    Attack(
        "signal-everybody", victim_felt_it, python="os.kill(-1, signal.SIGWINCH)", harmless=True
    ),
    # a signal to the process groups of the harness
    Attack(
        "signal-by-group",
        victim_felt_it,
        python="""
for pid in (int(E["VICTIM"]), int(E["HARNESS"])):
    each(lambda: os.killpg(os.getpgid(pid), signal.SIGWINCH))
each(lambda: os.kill(0, signal.SIGURG))
""",
        harmless=True,
    ),
    # a signal by descriptor
    Attack(
        "signal-by-pidfd",
        victim_felt_it,
        python="""
pidfd = call("pidfd_open", int(E["VICTIM"]), 0)
call("pidfd_send_signal", pidfd, int(signal.SIGURG), None, 0)
""",
        harmless=True,
    ),
    # a signal to a thread
    Attack(
        "signal-by-thread",
        victim_felt_it,
        python='call("tgkill", int(E["VICTIM"]), int(E["VICTIM"]), int(signal.SIGURG))',
        harmless=True,
    ),
    # have the kernel send one, for a file that is ready
    Attack(
        "signal-by-owner",
        victim_felt_it,
        python="""
near, far = socket.socketpair()
fcntl.fcntl(near, fcntl.F_SETOWN, int(E["VICTIM"]))
fcntl.fcntl(near, 10, int(signal.SIGURG))
fcntl.fcntl(near, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
far.send(b"x"); time.sleep(0.1)
""",
        harmless=True,
    ),
    # other resource limits for a process of the host
    Attack(
        "limits-of-the-victim",
        victim_felt_it,
        python='resource.prlimit(int(E["VICTIM"]), resource.RLIMIT_NOFILE, (64, 64))',
        harmless=True,
    ),
    # slow a process of the host down
    Attack(
        "priority-of-the-victim",
        victim_felt_it,
        python='os.setpriority(os.PRIO_PROCESS, int(E["VICTIM"]), 7)',
        harmless=True,
    ),
    # drive a process of the host off its processors
    Attack(
        "affinity-of-the-victim",
        victim_felt_it,
        python="""
mine = sorted(os.sched_getaffinity(0))
if len(mine) > 1: os.sched_setaffinity(int(E["VICTIM"]), mine[:1])
""",
    ),
    # make the kernel choose it when memory is short
    Attack(
        "offer-the-victim-to-the-oom-killer",
        victim_felt_it,
        bash='echo 999 > "/proc/$VICTIM/oom_score_adj"',
        harmless=True,
    ),
    # ptrace
    Attack(
        "debug-the-victim",
        says_so,
        python="""
if libc.ptrace(0x4206, int(E["VICTIM"]), None, None) == 0: win()
""",
        harmless=True,
    ),
    # ptrace what serves the sandbox
    Attack(
        "debug-the-agent",
        says_so,
        python="""
for pid in {1, os.getppid()}:
    win_if(libc.ptrace(0x4206, pid, None, None) == 0)
""",
        harmless=True,
    ),
    # write into the memory of a process of the host
    Attack(
        "overwrite-the-victim",
        says_so,
        python="""
mine = ctypes.create_string_buffer(b"0")
class Part(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
local, remote = Part(ctypes.addressof(mine), 1), Part(int(E["HELD_AT"]), 1)
win_if(call("process_vm_writev", int(E["VICTIM"]), ctypes.byref(local), ctypes.c_ulong(1),
       ctypes.byref(remote), ctypes.c_ulong(1), ctypes.c_ulong(0)) == 1)
""",
        harmless=True,
    ),
    # end what serves the sandbox
    Attack("kill-the-agent", silenced, bash="kill -9 1 $PPID; kill -TERM 1 $PPID; sleep 0.2"),
    # halt what serves the sandbox
    Attack("stop-the-agent", silenced, bash="kill -STOP 1 $PPID; sleep 0.2"),
    # take the agent down with all the rest
    Attack(
        "kill-everything-inside",
        silenced,
        python="""
if os.getuid() != 0:  # no sandbox leaves us root; where there is none, this would be the end
    os.kill(-1, signal.SIGSTOP)
""",
    ),
    # write nonsense to every descriptor there is
    Attack(
        "garble-the-agent",
        silenced,
        python="""
for fd in (0, *range(3, 1024)):
    each(lambda: os.write(fd, b"\\0" * 64 + b'{"status": 0}\\n'))
""",
    ),
    # a job in the background
    Attack("outlive-by-background", survived, bash=f"({_STAY}) & exit 0", harmless=True),
    # nohup, with no stream left open
    Attack(
        "outlive-by-nohup",
        survived,
        bash="nohup bash -c 'exec -a \"$MARK\" sleep 60' >/dev/null 2>&1 </dev/null & "
        + _ONCE_THERE,
        harmless=True,
    ),
    # a session of its own
    Attack(
        "outlive-by-setsid",
        survived,
        bash="setsid -f bash -c 'exec -a \"$MARK\" sleep 60' >/dev/null 2>&1 </dev/null; "
        + _ONCE_THERE,
        harmless=True,
    ),
    # no parent left that could be asked
    Attack(
        "outlive-by-double-fork",
        survived,
        python="""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        os.execvp("sleep", [E["MARK"], "60"])
    os._exit(0)
""",
        harmless=True,
    ),
    # adopt one's orphans, so that nobody else gets them
    Attack(
        "outlive-by-own-reaper",
        survived,
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
        harmless=True,
    ),
    # ignore every signal that can be ignored
    Attack(
        "outlive-by-deafness",
        survived,
        bash="trap '' HUP INT TERM QUIT USR1 USR2 ALRM PIPE; (while :; do sleep 1; done) & exit 0",
        harmless=True,
    ),
    # be halted when the signal comes
    Attack(
        "outlive-by-being-stopped",
        survived,
        bash="setsid bash -c 'kill -STOP $$; exec -a \"$MARK\" sleep 60' >/dev/null 2>&1 & exit 0",
        harmless=True,
    ),
    # fork and exit, again and again, faster than anybody can kill
    Attack(
        "outlive-by-running",
        beats,
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
        harmless=True,
    ),
    # wipe the environment that one could be found by
    Attack(
        "outlive-without-a-name",
        survived,
        bash='env -i setsid -f bash -c "exec -a $MARK sleep 60" >/dev/null 2>&1 </dev/null',
        harmless=True,
    ),
    # fill the process table
    Attack("fork-bomb", silenced, bash="bomb() { bomb | bomb & }; bomb; sleep 1", wall_seconds=2.0),
    # a thousand processes at once
    Attack(
        "fork-without-end",
        says_so,
        python="""
count = 0
try:
    for count in range(1000):
        if os.fork() == 0: time.sleep(30); os._exit(0)
except OSError: pass
win_if(count >= 999)
""",
    ),
    # two thousand threads at once
    Attack(
        "threads-without-end",
        says_so,
        python="""
import threading
count = 0
try:
    for count in range(2000): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
except RuntimeError: pass
win_if(count >= 1999)
sys.stdout.flush(); os._exit(0)
""",
    ),
    # put characters into the operator's input
    Attack(
        "type-into-the-terminal",
        says_so,
        python="""
for fd in (0, 1, 2):
    each(lambda: (fcntl.ioctl(fd, 0x5412, b"x"), win()))
each(lambda: (fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x"), win()))
# A filter that compares all 64 bits lets a command with the high half set through.
each(lambda: win_if(libc.ioctl(0, ctypes.c_ulong(0x100005412), b"x") == 0))
""",
    ),
    # write to the terminals of the machine
    Attack(
        "terminals-of-others",
        says_so,
        python="""
import glob
for path in glob.glob("/dev/pts/[0-9]*") + ["/dev/tty", "/dev/tty0", "/dev/tty1", "/dev/console"]:
    each(lambda: win_if(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK) >= 0))
""",
    ),
    # have somebody else start it later
    Attack(
        "crontab",
        lambda scene, ran: says_so(scene, ran) or touched(scene, ran),
        bash='echo "* * * * * true # $MARK" | crontab - && crontab -r && echo "$WIN";'
        ' mkdir -p "$REAL_HOME/.config/systemd" ',
    ),
)
