"""Attempts to change what is not the sandbox's, and to leave traps in what is."""

from tests.sandbox.attacks.attack import Attack, says_so, touched

_TRAP = "printf '#!/bin/sh\\n# %s\\n' \"$MARK\""

WRITING = (
    Attack(
        name="make-a-file-outside",
        tries="a new file in a folder that is open to all",
        bash='echo x > "$OPEN/new"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="overwrite-a-file-outside",
        tries="a file that everybody may write",
        bash='echo changed > "$TARGET"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="append-to-a-file-outside",
        tries="add a line",
        bash='echo more >> "$TARGET"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="truncate-a-file-outside",
        tries="cut it off by path",
        python='os.truncate(E["TARGET"], 0)',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="delete-a-file-outside",
        tries="unlink in a folder that is open to all",
        bash='rm -f "$OPEN/target.txt"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="rename-over-a-file-outside",
        tries="replace it by one from the workspace",
        bash='echo mine > mine; mv -f mine "$OPEN/target.txt"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="exchange-with-a-file-outside",
        tries="swap two names at once",
        python="""
open("mine", "w").close()
libc.renameat2(-100, b"mine", -100, f"{E['OPEN']}/target.txt".encode(), 2)
""",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="make-a-folder-outside",
        tries="mkdir",
        bash='mkdir "$OPEN/folder"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="make-a-pipe-outside",
        tries="mkfifo",
        bash='mkfifo "$OPEN/pipe"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="make-a-symlink-outside",
        tries="a link where others look",
        bash='ln -s /etc/passwd "$OPEN/link"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="make-a-hard-link-outside",
        tries="a workspace file under a name outside",
        bash='echo mine > mine; ln mine "$OPEN/link"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-by-symlink",
        tries="a link in the workspace that leads out",
        bash='ln -s "$OPEN" out; echo x > out/new; ln -s "$TARGET" file; echo x > file',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-by-hard-link",
        tries="a second name in the workspace, written through",
        bash='ln "$TARGET" second; echo changed > second',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-by-root-of-the-victim",
        tries="through another process' view of the file system",
        bash='echo x > "/proc/$VICTIM/root$TARGET"; echo x > "/proc/$VICTIM/cwd/target.txt"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-by-descriptor-of-the-victim",
        tries="reopen a file that another process has open",
        bash='echo changed > "/proc/$VICTIM/fd/9"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-inherited-descriptors",
        tries="files that whoever started the sandbox had open",
        python="""
for fd in range(3, 1024):
    each(lambda: os.pwrite(fd, b"changed", 0),
         lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
""",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="chmod-outside",
        tries="another mode for a file of the harness'",
        bash='chmod 600 "$OWNED"; chmod 777 "$OUTSIDE"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="chown-outside",
        tries="another owner",
        python='os.chown(E["OWNED"], 1, 1)',
        won=touched,
    ),
    Attack(
        name="utime-outside",
        tries="another date",
        python='os.utime(E["OWNED"], (1, 1))',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="xattr-outside",
        tries="an extended attribute",
        python='os.setxattr(E["OWNED"], "user.trap", b"x")',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-at-home",
        tries="a line in the operator's .bashrc",
        bash='echo "# $MARK" >> "$REAL_HOME/.bashrc"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-beside-the-workspace",
        tries="a file in the folder the workspace is in",
        bash='echo x > "$WORK/../beside"',
        won=touched,
    ),
    Attack(
        name="move-the-workspace",
        tries="rename the workspace itself",
        bash='mv "$WORK" "$WORK.moved"',
        won=touched,
    ),
    Attack(
        name="write-in-another-session",
        tries="another session's workspace, open to all",
        bash='echo x > "$OTHER/notes.txt"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-in-tmp",
        tries="the host's /tmp",
        bash='echo x > "/tmp/$MARK"; echo x > "/var/tmp/$MARK"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-in-shared-memory",
        tries="the host's /dev/shm",
        bash='echo x > "/dev/shm/$MARK"',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="write-in-the-system",
        tries="/usr, /etc, /var and /",
        bash='for at in /usr /usr/local /etc /var /root ""; do echo x > "$at/$MARK"; done',
        won=touched,
    ),
    Attack(
        name="open-the-password-file",
        tries="/etc/passwd for appending",
        bash='(exec 9>> /etc/passwd) && echo "$WIN"',
        won=says_so,
    ),
    Attack(
        name="kernel-settings",
        tries="write a setting of the kernel's back as it is",
        python="""
for path in ("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/printk"):
    each(lambda: win_if(os.write(os.open(path, os.O_RDWR), open(path, "rb").read())))
""",
        won=says_so,
    ),
    Attack(
        name="kernel-helpers",
        tries="what the kernel starts as root: core_pattern, modprobe, release_agent",
        python="""
import glob
places = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper",
          "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/hotplug", "/proc/sysrq-trigger"]
places += glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True)[:50]
places += glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:50]
for path in places:
    each(lambda: win_if(os.open(path, os.O_WRONLY) >= 0))
""",
        won=says_so,
    ),
    Attack(
        name="memory-of-the-victim",
        tries="write into a process of the host",
        python="""
each(lambda: win_if(open(f"/proc/{E['VICTIM']}/mem", "r+b", 0) is not None))
""",
        won=says_so,
        harmless=True,
    ),
    Attack(
        name="git-hook",
        tries="a hook that git runs outside at the next commit",
        bash=f"mkdir -p .git/hooks; {_TRAP} > .git/hooks/pre-commit",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="git-config",
        tries="a program that git runs outside at the next status",
        bash='printf \'[core]\\n\\tfsmonitor = "echo %s"\\n\' "$MARK" >> .git/config',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="git-config-by-rename",
        tries="replace the file instead of writing it, as git itself does",
        bash='cp .git/config c && echo "# $MARK" >> c && mv -f c .git/config',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="git-hooks-by-rename",
        tries="move the protected folder away and make another",
        bash=f"mv .git/hooks .git/old; mkdir -p .git/hooks; {_TRAP} > .git/hooks/pre-commit;"
        " [ -d .git/old ] && rm -rf .git/hooks && mv .git/old .git/hooks && echo > .git/hooks/x",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="git-folder-by-rename",
        tries="move the whole repository away and make another",
        bash=f"mv .git moved && cp -r moved .git && {_TRAP} > .git/hooks/pre-commit",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="hidden-folder-write",
        tries="leave a file in the platform's own folder",
        bash='echo "$MARK" > .mainspring/trap; echo x > .mainspring/secret.txt',
        won=touched,
        harmless=True,
    ),
    Attack(
        name="hidden-folder-replace",
        tries="put another folder in its place",
        bash="mv .mainspring gone; mkdir .mainspring; echo x > .mainspring/config",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="setuid-by-chmod",
        tries="leave a program that gives the rights of its owner",
        bash="cp /bin/true mine; chmod 4755 mine; chmod 2755 mine; chmod u+s mine",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="setuid-by-open",
        tries="the same by the mode of a new file",
        python="""
os.umask(0)
each(lambda: os.open("mine", os.O_CREAT | os.O_WRONLY, 0o4755),
     lambda: os.mknod("other", 0o4755 | stat.S_IFREG))
libc.creat(b"third", 0o4755)
""",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="setuid-by-descriptor",
        tries="the same by fchmod, fchmodat, fchmodat2 and openat2",
        python="""
with open("mine", "w") as file:
    each(lambda: os.fchmod(file.fileno(), 0o6755))
each(lambda: os.chmod("mine", 0o6755, dir_fd=os.open(".", os.O_RDONLY)))
call("fchmodat2", -100, b"mine", 0o6755, 0)
how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
call("openat2", -100, b"other", how, len(how))
""",
        won=touched,
        harmless=True,
    ),
    Attack(
        name="device-in-the-workspace",
        tries="leave a device that another can open",
        python="""
each(lambda: os.mknod("memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1)),
     lambda: os.mknod("disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0)))
""",
        won=touched,
    ),
    Attack(
        name="file-capabilities",
        tries="leave a program with capabilities",
        python="""
open("mine", "w").close()
each(lambda: os.setxattr("mine", "security.capability",
     bytes.fromhex("0100000200200000000000000000000000000000")))
win_if("security.capability" in os.listxattr("mine"))
""",
        won=says_so,
    ),
)
