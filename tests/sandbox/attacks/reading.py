"""Attempts to read what is not the sandbox's: files, environments, memory, hidden folders."""

from tests.sandbox.attacks.attack import Attack, leaked, says_so

READING = (
    # open a file that everybody may read
    Attack("read-a-file-outside", leaked, bash='cat "$CANARY"', harmless=True),
    # climb out of the workspace with ..
    Attack(
        "read-by-dots",
        leaked,
        bash='cat "../../../../../../../..$CANARY"; cat ../outside/canary.txt',
        harmless=True,
    ),
    # a symbolic link in the workspace that leads out
    Attack("read-by-symlink", leaked, bash='ln -s "$CANARY" link; cat link', harmless=True),
    # a symbolic link to a folder outside
    Attack(
        "read-by-folder-symlink",
        leaked,
        bash='ln -s "$OUTSIDE" folder; cat folder/canary.txt; ls folder/',
        harmless=True,
    ),
    # a second name in the workspace for a file outside
    Attack("read-by-hard-link", leaked, bash='ln "$CANARY" second; cat second', harmless=True),
    # rename a file outside into the workspace
    Attack(
        "read-by-moving-in", leaked, bash='mv "$OUTSIDE/canary.txt" mine; cat mine', harmless=True
    ),
    # names of files are secrets too
    Attack("list-a-folder-outside", leaked, bash='ls -la "$OUTSIDE"', harmless=True),
    # read everything beside the workspace
    Attack("search-around-the-workspace", leaked, bash='grep -rs . "$WORK/.."', harmless=True),
    # another session's workspace, open to all
    Attack("read-another-session", leaked, bash='cat "$OTHER/notes.txt"', harmless=True),
    # the operator's ssh key
    Attack("read-a-key-at-home", leaked, bash='cat "$REAL_HOME/.ssh/id_ed25519"', harmless=True),
    # the root directory of any other process
    Attack(
        "read-by-root-of-processes",
        leaked,
        bash='for root in /proc/[0-9]*/root; do cat "$root$CANARY"; done 2>&1',
        harmless=True,
    ),
    # the working directory of any other process
    Attack(
        "read-by-cwd-of-processes",
        leaked,
        bash="cat /proc/[0-9]*/cwd/canary.txt 2>&1",
        harmless=True,
    ),
    # a file that a process of the host has open
    Attack(
        "read-by-descriptors-of-the-victim", leaked, bash='cat "/proc/$VICTIM/fd/9"', harmless=True
    ),
    # open files through every process that can be seen
    Attack(
        "read-by-map-files",
        leaked,
        bash="for fd in /proc/[0-9]*/fd/*; do [ -f $fd ] && head -c 4096 $fd; done 2>/dev/null",
    ),
    # files that whoever started the sandbox had open
    Attack(
        "read-inherited-descriptors",
        leaked,
        python="""
for fd in range(3, 1024):
    each(lambda: print(os.pread(fd, 4096, 0)),
         lambda: print(os.listdir(fd)),
         lambda: print(os.read(os.open("canary.txt", os.O_RDONLY, dir_fd=fd), 4096)))
""",
        harmless=True,
    ),
    # an inherited folder leads to the root of the host
    Attack(
        "climb-from-inherited-folders",
        leaked,
        python="""
for fd in range(3, 1024):
    each(lambda: show(f"/proc/self/fd/{fd}/canary.txt"),
         lambda: (os.fchdir(fd), show("canary.txt")))
""",
    ),
    # what the harness has in its environment is handed on
    Attack("environment-of-its-own", leaked, bash="env; export -p", harmless=True),
    # the launcher's environment
    Attack("environment-of-pid-1", leaked, bash="cat /proc/1/environ | tr '\\0' '\\n'"),
    # the environment of every process
    Attack(
        "environment-of-all",
        leaked,
        bash="cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'",
        harmless=True,
    ),
    # the environment of its own ancestors
    Attack(
        "environment-of-parents",
        leaked,
        python="""
pid = os.getpid()
while pid > 0:
    each(lambda: show(f"/proc/{pid}/environ"))
    pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
""",
        harmless=True,
    ),
    # arguments of the host's processes
    Attack(
        "command-lines-of-all",
        leaked,
        bash="cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; ps axww",
        harmless=True,
    ),
    # the memory of a process of the host
    Attack(
        "memory-by-proc",
        leaked,
        python="""
with open(f"/proc/{E['VICTIM']}/mem", "rb", 0) as memory:
    memory.seek(int(E["HELD_AT"])); print(memory.read(int(E["HELD_SIZE"])))
""",
        harmless=True,
    ),
    # the same by system call
    Attack(
        "memory-by-vm-readv",
        leaked,
        python="""
size = int(E["HELD_SIZE"])
mine = ctypes.create_string_buffer(size)
class Part(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
local, remote = Part(ctypes.addressof(mine), size), Part(int(E["HELD_AT"]), size)
call("process_vm_readv", int(E["VICTIM"]), ctypes.byref(local), ctypes.c_ulong(1),
     ctypes.byref(remote), ctypes.c_ulong(1), ctypes.c_ulong(0))
print(mine.raw)
""",
        harmless=True,
    ),
    # the memory of what serves the sandbox: it holds the control socket
    Attack(
        "memory-of-the-agent",
        says_so,
        python="""
for pid in {1, os.getppid()}:
    each(lambda: win_if(open(f"/proc/{pid}/mem", "rb", 0) is not None))
""",
        harmless=True,
    ),
    # take an open file out of a process of the host
    Attack(
        "steal-a-descriptor-of-the-victim",
        leaked,
        python="""
pidfd = call("pidfd_open", int(E["VICTIM"]), 0)
fd = call("pidfd_getfd", pidfd, 9, 0)
print(os.pread(fd, 4096, 0))
""",
        harmless=True,
    ),
    # take the agent's socket and speak in its name
    Attack(
        "steal-the-control-socket",
        says_so,
        python="""
for pid in {1, os.getppid()}:
    pidfd = call("pidfd_open", pid, 0)
    win_if(pidfd >= 0 and any(call("pidfd_getfd", pidfd, fd, 0) >= 0 for fd in range(3, 16)))
""",
    ),
    # the platform's own folder inside the workspace
    Attack(
        "hidden-folder",
        leaked,
        bash="cat .mainspring/secret.txt; ls -laR .mainspring",
        harmless=True,
    ),
    # the same by reading everything
    Attack(
        "hidden-folder-by-search",
        leaked,
        bash="grep -rs . .; find . -type f -exec cat {} +",
        harmless=True,
    ),
    # move the hidden folder to where it is not hidden
    Attack(
        "hidden-folder-by-rename",
        leaked,
        bash="mv .mainspring plain && cat plain/secret.txt; mv plain .mainspring",
        harmless=True,
    ),
    # another name for a hidden file
    Attack(
        "hidden-folder-by-hard-link",
        leaked,
        bash="ln .mainspring/secret.txt plain; cat plain",
        harmless=True,
    ),
    # open the hidden folder first
    Attack(
        "hidden-folder-by-chmod",
        leaked,
        bash="chmod -R 777 .mainspring; cat .mainspring/*",
        harmless=True,
    ),
    # reach the hidden folder by names that mean the same
    Attack(
        "hidden-folder-by-other-path",
        leaked,
        bash='cat "$WORK/../work/.mainspring/secret.txt" /proc/self/cwd/.mainspring/secret.txt',
        harmless=True,
    ),
    # /etc/shadow
    Attack("password-hashes", leaked, bash="cat /etc/shadow /etc/gshadow /etc/shadow-"),
    # files in the host's /dev/shm
    Attack("shared-memory-folder", leaked, bash="cat /dev/shm/*", harmless=True),
    # a System V segment of the host
    Attack(
        "shared-memory-by-key",
        leaked,
        python="""
libc.shmat.restype = ctypes.c_void_p
found = libc.shmget(int(E["SHM_KEY"]), 0, 0)
at = libc.shmat(found, None, 0o10000)
if found >= 0 and at != 2**64 - 1: print(ctypes.string_at(at, 64))
""",
        harmless=True,
    ),
    # files of /proc that are about the kernel and not about a process
    Attack(
        "read-what-proc-tells-of-the-machine",
        says_so,
        python="""
harmless = {"cgroups", "cpuinfo", "filesystems", "loadavg", "meminfo", "mounts", "net", "self",
            "stat", "sys", "thread-self", "uptime", "version", "vmstat"}
harmful = {"kmsg", "kcore", "sysrq-trigger"}  # to be tried without a sandbox
def look(name):
    path = f"/proc/{name}"
    if os.path.isdir(path): return win_if(os.listdir(path))
    with open(path, "rb", 0) as file: win_if(file.read(8))
for name in os.listdir("/proc"):
    if not name.isdigit() and name not in harmless | harmful:
        each(lambda: look(name))
""",
        harmless=True,
    ),
    # kernel memory, log, symbols and timers
    Attack(
        "kernel-memory",
        says_so,
        python="""
for path in ("/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/proc/kmsg"):
    each(lambda: win_if(os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 16)))
each(lambda: win_if(libc.klogctl(3, ctypes.create_string_buffer(4096), 4096) > 0))
""",
    ),
    # the machine's disk, below the file system
    Attack(
        "raw-disk",
        says_so,
        python="""
import glob
for path in glob.glob("/dev/[svx]d[a-z]*") + glob.glob("/dev/nvme*") + glob.glob("/dev/loop*"):
    each(lambda: win_if(os.read(os.open(path, os.O_RDONLY), 16)))
major, minor = os.major(os.stat("/usr").st_dev), os.minor(os.stat("/usr").st_dev)
each(lambda: (os.mknod("disk", 0o600 | stat.S_IFBLK, os.makedev(major, minor)),
              win_if(os.read(os.open("disk", os.O_RDONLY), 16))))
""",
    ),
)
