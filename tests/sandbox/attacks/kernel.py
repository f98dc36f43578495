"""Attempts at parts of the kernel that no program of ours needs, and at more rights."""

from tests.sandbox.attacks.attack import Attack, leaked, says_so


def _system_call(name: str, python: str, *, harmless: bool = False) -> Attack:
    return Attack(name, says_so, python=python, harmless=harmless)


KERNEL = (
    *(
        _system_call(f"unshare-{kind}", f"win_if(libc.unshare({flag:#x}) == 0)")
        for kind, flag in (
            ("user", 0x10000000),
            ("mount", 0x20000),
            ("network", 0x40000000),
            ("pid", 0x20000000),
            ("cgroup", 0x02000000),
        )
    ),
    # a child in a new user namespace
    _system_call(
        "clone-into-a-namespace",
        """
pid = call("clone", ctypes.c_ulong(0x10000000 | signal.SIGCHLD), None, None, None, None)
if pid == 0: os._exit(0)
win_if(pid > 0)
""",
    ),
    # the same by the call whose flags a filter cannot see
    _system_call(
        "clone3-into-a-namespace",
        """
how = struct.pack("8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
pid = call("clone3", how, len(how))
if pid == 0: os._exit(0)
win_if(pid > 0)
""",
    ),
    # the namespaces of other processes
    _system_call(
        "enter-namespaces",
        """
for pid in (1, os.getppid(), E["VICTIM"]):
    for name in ("user", "mnt", "net", "pid", "ipc", "uts"):
        each(lambda: win_if(libc.setns(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), 0) == 0))
    win_if(libc.setns(call("pidfd_open", int(pid), 0), 0x20000) == 0)
""",
    ),
    # tmpfs, proc and a bind over /tmp
    _system_call(
        "mount-a-file-system",
        """
os.makedirs("at", exist_ok=True)
win_if(libc.mount(b"none", b"at", b"tmpfs", 0, None) == 0)
win_if(libc.mount(b"none", b"at", b"proc", 0, None) == 0)
win_if(libc.mount(b".", b"at", None, 4096, None) == 0)
""",
    ),
    # fsopen and open_tree
    _system_call(
        "mount-by-the-new-calls",
        """
win_if(call("fsopen", b"tmpfs", 0) >= 0)
win_if(call("open_tree", -100, b"/", ctypes.c_uint(1)) >= 0)
""",
    ),
    # take read-only away again
    _system_call(
        "remount-for-writing",
        """
for place in (b"/", b"/usr", b"/proc/sys", b"/dev"):
    win_if(libc.mount(None, place, None, 32 | 4096, None) == 0)
""",
    ),
    # take away what lies over the hidden folder
    Attack(
        "unmount-what-hides",
        leaked,
        python="""
for place in (".mainspring", ".git/hooks", "/proc/sys", "/tmp"):
    libc.umount2(place.encode(), 2)
each(lambda: show(".mainspring/secret.txt"))
""",
        harmless=True,
    ),
    # another root for everybody
    _system_call(
        "pivot-root",
        """
os.makedirs("at/old", exist_ok=True)
win_if(call("pivot_root", b"at", b"at/old") == 0)
""",
    ),
    # the classic way out of a changed root
    Attack(
        "chroot-and-climb",
        says_so,
        python="""
os.makedirs("at", exist_ok=True)
each(lambda: (os.chroot("at"), [os.chdir("..") for _ in range(64)], os.chroot("."), win()))
each(lambda: show(E["CANARY"]))
""",
    ),
    # open by inode number, past every path (as in shocker)
    Attack(
        "file-by-handle",
        says_so,
        python="""
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + b"\\0" * 128)
mount = ctypes.c_int()
call("name_to_handle_at", -100, b"/", handle, ctypes.byref(mount), 0)
fd = call("open_by_handle_at", os.open("/", os.O_RDONLY), handle, os.O_RDONLY)
win_if(fd >= 0)
""",
    ),
    # do everything past the filter
    _system_call(
        "io-uring",
        'win_if(call("io_uring_setup", 8, ctypes.create_string_buffer(120)) >= 0)',
        harmless=True,
    ),
    # load a program into the kernel
    _system_call(
        "bpf",
        """
win_if(call("bpf", 0, struct.pack("5I", 2, 4, 4, 1, 0) + b"\\0" * 100, 120) >= 0)
""",
    ),
    # keys that live outside any file system
    _system_call(
        "keyring",
        """
win_if(call("add_key", b"user", b"mainspring-attack", b"x", 1, -3) >= 0)
win_if(call("keyctl", 0, -3, 0, 0, 0) >= 0)
win_if(call("keyctl", 0, -4, 1, 0, 0) >= 0)
""",
        harmless=True,
    ),
    # watch others by the processor's counters
    _system_call(
        "performance-counters",
        """
how = struct.pack("IIQ", 1, 120, 0) + b"\\0" * 104
win_if(call("perf_event_open", how, 0, -1, -1, 0) >= 0)
win_if(call("perf_event_open", how, -1, 0, -1, 0) >= 0)
""",
    ),
    # halt the kernel in the middle of a copy
    _system_call(
        "userfaultfd",
        'win_if(call("userfaultfd", 1) >= 0 or call("userfaultfd", 0) >= 0)',
        harmless=True,
    ),
    # load a module
    _system_call(
        "kernel-module",
        """
win_if(call("finit_module", os.open("/usr/bin/true", os.O_RDONLY), b"", 0) == 0
       or ctypes.get_errno() not in (1, 38))
""",
    ),
    # load another kernel
    _system_call(
        "kexec", 'win_if(call("kexec_load", 0, ctypes.c_ulong(0), None, ctypes.c_ulong(0)) == 0)'
    ),
    # ask for one in the mildest way: whether ctrl-alt-del does it
    _system_call("reboot", 'win_if(call("reboot", 0xFEE1DEAD, 672274793, 0, None) == 0)'),
    # set it to what it is
    _system_call(
        "set-the-clock",
        """
try: time.clock_settime_ns(time.CLOCK_REALTIME, time.clock_gettime_ns(time.CLOCK_REALTIME)); win()
except OSError: pass
""",
    ),
    # the one it has already
    _system_call(
        "set-the-host-name",
        """
try: socket.sethostname(socket.gethostname()); win()
except OSError: pass
""",
    ),
    # fanotify over the file system
    _system_call("watch-all-files", 'win_if(call("fanotify_init", 4, 0) >= 0)'),
    # a queue that outlives the sandbox
    _system_call(
        "message-queues-of-the-host",
        """
found = call("mq_open", E["MARK"].encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
if found >= 0 and os.path.exists("/proc/self/ns"):
    win_if(os.readlink("/proc/self/ns/ipc") == os.environ.get("HOST_IPC"))
elif found >= 0: win()
""",
    ),
    # a process whose memory is where one expects it
    _system_call(
        "without-randomized-addresses", "win_if(libc.personality(0x0040000) >= 0)", harmless=True
    ),
    # system calls by int 0x80, whose numbers mean others
    _system_call(
        "calls-of-32-bits",
        """
if os.uname().machine == "x86_64":
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    win_if(ctypes.CFUNCTYPE(ctypes.c_long)(at)() == os.getpid())
""",
    ),
    # system calls with the x32 bit set
    _system_call(
        "calls-of-x32",
        """
if os.uname().machine == "x86_64": win_if(libc.syscall(0x40000000 | 39) == os.getpid())
""",
    ),
    # system calls newer than any filter knows
    _system_call(
        "unknown-calls",
        """
for number in range(470, 520):
    ctypes.set_errno(0)
    if libc.syscall(number, -1, -1, -1, -1, -1, -1) >= 0 or ctypes.get_errno() not in (1, 38): win()
""",
    ),
    # nothing forbids that a program gets more rights than its caller has
    _system_call(
        "gain-rights-by-setuid-programs", "win_if(libc.prctl(39, 0, 0, 0, 0) == 0)", harmless=True
    ),
    # any capability at all, or a way to get one
    _system_call(
        "have-capabilities",
        """
class Header(ctypes.Structure): _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
caps = (ctypes.c_uint32 * 6)()
libc.capget(ctypes.byref(Header(0x20080522, 0)), caps)
win_if(any(caps))
""",
    ),
    # uid 0
    _system_call(
        "become-root",
        """
for attempt in (os.setuid, os.seteuid, os.setgid):
    each(lambda: (attempt(0), win()))
each(lambda: (os.setgroups([0]), win()))
""",
    ),
    # no filter on system calls
    _system_call("without-a-filter", "win_if(libc.prctl(21, 0, 0, 0, 0) == 0)", harmless=True),
    # kvm, fuse, tun, vhost, dri, input, loop
    _system_call(
        "devices-of-the-host",
        """
for name in ("kvm", "fuse", "net/tun", "vhost-vsock", "vhost-net", "loop-control", "dri/card0",
             "input/event0", "mapper/control", "vfio/vfio", "userfaultfd", "uinput", "cuse"):
    each(lambda: win_if(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK) >= 0))
""",
    ),
)
