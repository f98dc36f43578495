"""Attempts to read what is not the sandbox's: files, environments, memory, hidden folders."""

from tests.sandbox.attacks.attack import Attack, leaked, says_so

READING = (
    Attack(
        name="read-a-file-outside",
        tries="open a file that everybody may read",
        bash='cat "$CANARY"',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-dots",
        tries="climb out of the workspace with ..",
        bash='cat "../../../../../../../..$CANARY"; cat ../outside/canary.txt',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-symlink",
        tries="a symbolic link in the workspace that leads out",
        bash='ln -s "$CANARY" link; cat link',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-folder-symlink",
        tries="a symbolic link to a folder outside",
        bash='ln -s "$OUTSIDE" folder; cat folder/canary.txt; ls folder/',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-hard-link",
        tries="a second name in the workspace for a file outside",
        bash='ln "$CANARY" second; cat second',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-moving-in",
        tries="rename a file outside into the workspace",
        bash='mv "$OUTSIDE/canary.txt" mine; cat mine',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="list-a-folder-outside",
        tries="names of files are secrets too",
        bash='ls -la "$OUTSIDE"',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="search-around-the-workspace",
        tries="read everything beside the workspace",
        bash='grep -rs . "$WORK/.."',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-another-session",
        tries="another session's workspace, open to all",
        bash='cat "$OTHER/notes.txt"',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-a-key-at-home",
        tries="the operator's ssh key",
        bash='cat "$REAL_HOME/.ssh/id_ed25519"',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-root-of-processes",
        tries="the root directory of any other process",
        bash='for root in /proc/[0-9]*/root; do cat "$root$CANARY"; done 2>&1',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-cwd-of-processes",
        tries="the working directory of any other process",
        bash="cat /proc/[0-9]*/cwd/canary.txt 2>&1",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-descriptors-of-the-victim",
        tries="a file that a process of the host has open",
        bash='cat "/proc/$VICTIM/fd/9"',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-by-map-files",
        tries="open files through every process that can be seen",
        bash="for fd in /proc/[0-9]*/fd/*; do [ -f $fd ] && head -c 4096 $fd; done 2>/dev/null",
        won=leaked,
    ),
    Attack(
        name="read-inherited-descriptors",
        tries="files that whoever started the sandbox had open",
        python="""
for fd in range(3, 1024):
    each(lambda: print(os.pread(fd, 4096, 0)),
         lambda: print(os.listdir(fd)),
         lambda: print(os.read(os.open("canary.txt", os.O_RDONLY, dir_fd=fd), 4096)))
""",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="climb-from-inherited-folders",
        tries="an inherited folder leads to the root of the host",
        python="""
for fd in range(3, 1024):
    each(lambda: show(f"/proc/self/fd/{fd}/canary.txt"),
         lambda: (os.fchdir(fd), show("canary.txt")))
""",
        won=leaked,
    ),
    Attack(
        name="environment-of-its-own",
        tries="what the harness has in its environment is handed on",
        bash="env; export -p",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="environment-of-pid-1",
        tries="the launcher's environment",
        bash="cat /proc/1/environ | tr '\\0' '\\n'",
        won=leaked,
    ),
    Attack(
        name="environment-of-all",
        tries="the environment of every process",
        bash="cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="environment-of-parents",
        tries="the environment of its own ancestors",
        python="""
pid = os.getpid()
while pid > 0:
    each(lambda: show(f"/proc/{pid}/environ"))
    pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
""",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="command-lines-of-all",
        tries="arguments of the host's processes",
        bash="cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; ps axww",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="memory-by-proc",
        tries="the memory of a process of the host",
        python="""
with open(f"/proc/{E['VICTIM']}/mem", "rb", 0) as memory:
    memory.seek(int(E["HELD_AT"])); print(memory.read(int(E["HELD_SIZE"])))
""",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="memory-by-vm-readv",
        tries="the same by system call",
        python="""
size = int(E["HELD_SIZE"])
mine = ctypes.create_string_buffer(size)
class Part(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
local, remote = Part(ctypes.addressof(mine), size), Part(int(E["HELD_AT"]), size)
call("process_vm_readv", int(E["VICTIM"]), ctypes.byref(local), ctypes.c_ulong(1),
     ctypes.byref(remote), ctypes.c_ulong(1), ctypes.c_ulong(0))
print(mine.raw)
""",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="memory-of-the-agent",
        tries="the memory of what serves the sandbox: it holds the control socket",
        python="""
for pid in {1, os.getppid()}:
    each(lambda: win_if(open(f"/proc/{pid}/mem", "rb", 0) is not None))
""",
        won=says_so,
        harmless=True,
    ),
    Attack(
        name="steal-a-descriptor-of-the-victim",
        tries="take an open file out of a process of the host",
        python="""
pidfd = call("pidfd_open", int(E["VICTIM"]), 0)
fd = call("pidfd_getfd", pidfd, 9, 0)
print(os.pread(fd, 4096, 0))
""",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="steal-the-control-socket",
        tries="take the agent's socket and speak in its name",
        python="""
for pid in {1, os.getppid()}:
    pidfd = call("pidfd_open", pid, 0)
    win_if(pidfd >= 0 and any(call("pidfd_getfd", pidfd, fd, 0) >= 0 for fd in range(3, 16)))
""",
        won=says_so,
    ),
    Attack(
        name="hidden-folder",
        tries="the platform's own folder inside the workspace",
        bash="cat .mainspring/secret.txt; ls -laR .mainspring",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="hidden-folder-by-search",
        tries="the same by reading everything",
        bash="grep -rs . .; find . -type f -exec cat {} +",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="hidden-folder-by-rename",
        tries="move the hidden folder to where it is not hidden",
        bash="mv .mainspring plain && cat plain/secret.txt; mv plain .mainspring",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="hidden-folder-by-hard-link",
        tries="another name for a hidden file",
        bash="ln .mainspring/secret.txt plain; cat plain",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="hidden-folder-by-chmod",
        tries="open the hidden folder first",
        bash="chmod -R 777 .mainspring; cat .mainspring/*",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="hidden-folder-by-other-path",
        tries="reach the hidden folder by names that mean the same",
        bash='cat "$WORK/../work/.mainspring/secret.txt" /proc/self/cwd/.mainspring/secret.txt',
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="password-hashes",
        tries="/etc/shadow",
        bash="cat /etc/shadow /etc/gshadow /etc/shadow-",
        won=leaked,
    ),
    Attack(
        name="shared-memory-folder",
        tries="files in the host's /dev/shm",
        bash="cat /dev/shm/*",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="shared-memory-by-key",
        tries="a System V segment of the host",
        python="""
libc.shmat.restype = ctypes.c_void_p
found = libc.shmget(int(E["SHM_KEY"]), 0, 0)
at = libc.shmat(found, None, 0o10000)
if found >= 0 and at != 2**64 - 1: print(ctypes.string_at(at, 64))
""",
        won=leaked,
        harmless=True,
    ),
    Attack(
        name="read-what-proc-tells-of-the-machine",
        tries="files of /proc that are about the kernel and not about a process",
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
        won=says_so,
        harmless=True,
    ),
    Attack(
        name="kernel-memory",
        tries="kernel memory, log, symbols and timers",
        python="""
for path in ("/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/proc/kmsg"):
    each(lambda: win_if(os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 16)))
each(lambda: win_if(libc.klogctl(3, ctypes.create_string_buffer(4096), 4096) > 0))
""",
        won=says_so,
    ),
    Attack(
        name="raw-disk",
        tries="the machine's disk, below the file system",
        python="""
import glob
for path in glob.glob("/dev/[svx]d[a-z]*") + glob.glob("/dev/nvme*") + glob.glob("/dev/loop*"):
    each(lambda: win_if(os.read(os.open(path, os.O_RDONLY), 16)))
major, minor = os.major(os.stat("/usr").st_dev), os.minor(os.stat("/usr").st_dev)
each(lambda: (os.mknod("disk", 0o600 | stat.S_IFBLK, os.makedev(major, minor)),
              win_if(os.read(os.open("disk", os.O_RDONLY), 16))))
""",
        won=says_so,
    ),
)
