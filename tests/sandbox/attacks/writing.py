"""Attempts to change what is not the sandbox's, and to leave traps in what is."""

from tests.sandbox.attacks.attack import Attack, says_so, touched

_TRAP = "printf '#!/bin/sh\\n# %s\\n' \"$MARK\""

WRITING = (
    # a new file in a folder that is open to all
    Attack("make-a-file-outside", touched, bash='echo x > "$OPEN/new"', harmless=True),
    # a file that everybody may write
    Attack("overwrite-a-file-outside", touched, bash='echo changed > "$TARGET"', harmless=True),
    # add a line
    Attack("append-to-a-file-outside", touched, bash='echo more >> "$TARGET"', harmless=True),
    # cut it off by path
    Attack("truncate-a-file-outside", touched, python='os.truncate(E["TARGET"], 0)', harmless=True),
    # unlink in a folder that is open to all
    Attack("delete-a-file-outside", touched, bash='rm -f "$OPEN/target.txt"', harmless=True),
    # replace it by one from the workspace
    Attack(
        "rename-over-a-file-outside",
        touched,
        bash='echo mine > mine; mv -f mine "$OPEN/target.txt"',
        harmless=True,
    ),
    # swap two names at once
    Attack(
        "exchange-with-a-file-outside",
        touched,
        python="""
open("mine", "w").close()
libc.renameat2(-100, b"mine", -100, f"{E['OPEN']}/target.txt".encode(), 2)
""",
        harmless=True,
    ),
    # mkdir
    Attack("make-a-folder-outside", touched, bash='mkdir "$OPEN/folder"', harmless=True),
    # mkfifo
    Attack("make-a-pipe-outside", touched, bash='mkfifo "$OPEN/pipe"', harmless=True),
    # a link where others look
    Attack("make-a-symlink-outside", touched, bash='ln -s /etc/passwd "$OPEN/link"', harmless=True),
    # a workspace file under a name outside
    Attack(
        "make-a-hard-link-outside",
        touched,
        bash='echo mine > mine; ln mine "$OPEN/link"',
        harmless=True,
    ),
    # a link in the workspace that leads out
    Attack(
        "write-by-symlink",
        touched,
        bash='ln -s "$OPEN" out; echo x > out/new; ln -s "$TARGET" file; echo x > file',
        harmless=True,
    ),
    # a second name in the workspace, written through
    Attack(
        "write-by-hard-link",
        touched,
        bash='ln "$TARGET" second; echo changed > second',
        harmless=True,
    ),
    # through another process' view of the file system
    Attack(
        "write-by-root-of-the-victim",
        touched,
        bash='echo x > "/proc/$VICTIM/root$TARGET"; echo x > "/proc/$VICTIM/cwd/target.txt"',
        harmless=True,
    ),
    # reopen a file that another process has open
    Attack(
        "write-by-descriptor-of-the-victim",
        touched,
        bash='echo changed > "/proc/$VICTIM/fd/9"',
        harmless=True,
    ),
    # files that whoever started the sandbox had open
    Attack(
        "write-inherited-descriptors",
        touched,
        python="""
for fd in range(3, 1024):
    each(lambda: os.pwrite(fd, b"changed", 0),
         lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
""",
        harmless=True,
    ),
    # another mode for a file of the harness'
    Attack(
        "chmod-outside", touched, bash='chmod 600 "$OWNED"; chmod 777 "$OUTSIDE"', harmless=True
    ),
    # another owner
    Attack("chown-outside", touched, python='os.chown(E["OWNED"], 1, 1)'),
    # another date
    Attack("utime-outside", touched, python='os.utime(E["OWNED"], (1, 1))', harmless=True),
    # an extended attribute
    Attack(
        "xattr-outside", touched, python='os.setxattr(E["OWNED"], "user.trap", b"x")', harmless=True
    ),
    # a line in the operator's .bashrc
    Attack("write-at-home", touched, bash='echo "# $MARK" >> "$REAL_HOME/.bashrc"', harmless=True),
    # a file in the folder the workspace is in
    Attack("write-beside-the-workspace", touched, bash='echo x > "$WORK/../beside"'),
    # rename the workspace itself
    Attack("move-the-workspace", touched, bash='mv "$WORK" "$WORK.moved"'),
    # another session's workspace, open to all
    Attack("write-in-another-session", touched, bash='echo x > "$OTHER/notes.txt"', harmless=True),
    # the host's /tmp
    Attack(
        "write-in-tmp",
        touched,
        bash='echo x > "/tmp/$MARK"; echo x > "/var/tmp/$MARK"',
        harmless=True,
    ),
    # the host's /dev/shm
    Attack("write-in-shared-memory", touched, bash='echo x > "/dev/shm/$MARK"', harmless=True),
    # /usr, /etc, /var and /
    Attack(
        "write-in-the-system",
        touched,
        bash='for at in /usr /usr/local /etc /var /root ""; do echo x > "$at/$MARK"; done',
    ),
    # /etc/passwd for appending
    Attack("open-the-password-file", says_so, bash='(exec 9>> /etc/passwd) && echo "$WIN"'),
    # write a setting of the kernel's back as it is
    Attack(
        "kernel-settings",
        says_so,
        python="""
for path in ("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/printk"):
    each(lambda: win_if(os.write(os.open(path, os.O_RDWR), open(path, "rb").read())))
""",
    ),
    # what the kernel starts as root: core_pattern, modprobe, release_agent
    Attack(
        "kernel-helpers",
        says_so,
        python="""
import glob
places = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper",
          "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/hotplug", "/proc/sysrq-trigger"]
places += glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True)[:50]
places += glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:50]
for path in places:
    each(lambda: win_if(os.open(path, os.O_WRONLY) >= 0))
""",
    ),
    # write into a process of the host
    Attack(
        "memory-of-the-victim",
        says_so,
        python="""
each(lambda: win_if(open(f"/proc/{E['VICTIM']}/mem", "r+b", 0) is not None))
""",
        harmless=True,
    ),
    # a hook that git runs outside at the next commit
    Attack(
        "git-hook",
        touched,
        bash=f"mkdir -p .git/hooks; {_TRAP} > .git/hooks/pre-commit",
        harmless=True,
    ),
    # a program that git runs outside at the next status
    Attack(
        "git-config",
        touched,
        bash='printf \'[core]\\n\\tfsmonitor = "echo %s"\\n\' "$MARK" >> .git/config',
        harmless=True,
    ),
    # replace the file instead of writing it, as git itself does
    Attack(
        "git-config-by-rename",
        touched,
        bash='cp .git/config c && echo "# $MARK" >> c && mv -f c .git/config',
        harmless=True,
    ),
    # move the protected folder away and make another
    Attack(
        "git-hooks-by-rename",
        touched,
        bash=f"mv .git/hooks .git/old; mkdir -p .git/hooks; {_TRAP} > .git/hooks/pre-commit;"
        " [ -d .git/old ] && rm -rf .git/hooks && mv .git/old .git/hooks && echo > .git/hooks/x",
        harmless=True,
    ),
    # move the whole repository away and make another
    Attack(
        "git-folder-by-rename",
        touched,
        bash=f"mv .git moved && cp -r moved .git && {_TRAP} > .git/hooks/pre-commit",
        harmless=True,
    ),
    # leave a file in the platform's own folder
    Attack(
        "hidden-folder-write",
        touched,
        bash='echo "$MARK" > .mainspring/trap; echo x > .mainspring/secret.txt',
        harmless=True,
    ),
    # put another folder in its place
    Attack(
        "hidden-folder-replace",
        touched,
        bash="mv .mainspring gone; mkdir .mainspring; echo x > .mainspring/config",
        harmless=True,
    ),
    # leave a program that gives the rights of its owner
    Attack(
        "setuid-by-chmod",
        touched,
        bash="cp /bin/true mine; chmod 4755 mine; chmod 2755 mine; chmod u+s mine",
        harmless=True,
    ),
    # the same by the mode of a new file
    Attack(
        "setuid-by-open",
        touched,
        python="""
os.umask(0)
each(lambda: os.open("mine", os.O_CREAT | os.O_WRONLY, 0o4755),
     lambda: os.mknod("other", 0o4755 | stat.S_IFREG))
libc.creat(b"third", 0o4755)
""",
        harmless=True,
    ),
    # the same by fchmod, fchmodat, fchmodat2 and openat2
    Attack(
        "setuid-by-descriptor",
        touched,
        python="""
with open("mine", "w") as file:
    each(lambda: os.fchmod(file.fileno(), 0o6755))
each(lambda: os.chmod("mine", 0o6755, dir_fd=os.open(".", os.O_RDONLY)))
call("fchmodat2", -100, b"mine", 0o6755, 0)
how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
call("openat2", -100, b"other", how, len(how))
""",
        harmless=True,
    ),
    # leave a device that another can open
    Attack(
        "device-in-the-workspace",
        touched,
        python="""
each(lambda: os.mknod("memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1)),
     lambda: os.mknod("disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0)))
""",
    ),
    # leave a program with capabilities
    Attack(
        "file-capabilities",
        says_so,
        python="""
open("mine", "w").close()
each(lambda: os.setxattr("mine", "security.capability",
     bytes.fromhex("0100000200200000000000000000000000000000")))
win_if("security.capability" in os.listxattr("mine"))
""",
    ),
)
