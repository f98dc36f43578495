"""What attacks are aimed at: secrets, files, listeners and a process of the host's own.

Everything is made for the occasion, in a folder of its own; nothing of the machine's is at stake
unless a sandbox fails, and even then only a marker is left, which is removed again.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.sandbox.attacks.listeners import Listeners

_SPOTS = ("/tmp", "/var/tmp", "/dev/shm", "/usr", "/usr/local", "/etc", "/var", "/root", "/")
_GRACE_SECONDS = 0.3
_PATIENCE_SECONDS = 1.0
_BEAT_SECONDS = 0.3
# Says when it is there, and what hits it; holds a secret in its memory and a file open at 9.
_VICTIM = """
import ctypes, os, signal, sys
held = ctypes.create_string_buffer((os.environ["HELD"][::-1]).encode())
def hit(*_): os.write(1, b"hit\\n")
for each in (signal.SIGWINCH, signal.SIGURG, signal.SIGCONT): signal.signal(each, hit)
os.dup2(os.open(sys.argv[2], os.O_RDWR), 9)
libc = ctypes.CDLL(None)
libc.prctl(1, 9, 0, 0, 0)  # dies with who started it
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(int(sys.argv[3]), 4096, 0o1666)
shared = libc.shmat(segment, None, 0)
ctypes.memmove(shared, os.environ["SHARED"].encode(), len(os.environ["SHARED"]))
print(ctypes.addressof(held), segment, flush=True)
while True: signal.pause()
"""


class Scene:
    def __init__(self, root: Path, planted: str) -> None:
        self.root = root
        self._planted = planted
        """What the environment of this process has; none of it may be seen inside."""
        self.win = "won-" + secrets.token_hex(8)
        self.round = 0
        self.answers = True
        """Whether the session that was attacked still runs what it is asked to."""
        self.inherited: tuple[int, ...] = ()
        self._mark = _new_mark()  # never empty: what bears it is killed
        self._secrets = [secrets.token_hex(16) for _ in range(9)]
        self._stack = ExitStack()

    def __enter__(self) -> Scene:
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        self._stack.callback(subprocess.run, ["rm", "-rf", str(self.root)], check=False)
        self._plant()
        shm = Path("/dev/shm", "canary-" + secrets.token_hex(8))
        shm.write_text(self._secrets[5])
        shm.chmod(0o666)
        self._stack.callback(shm.unlink, missing_ok=True)
        self._listeners = self._stack.enter_context(
            Listeners(self.outside / "open", answer=self._secrets[6].encode())
        )
        self._start_victim()
        # The harness holds these open; whoever starts a sandbox must not pass them on.
        self.inherited = (
            os.open(self.outside / "target.txt", os.O_RDWR),
            os.open(self.outside, os.O_RDONLY | os.O_DIRECTORY),
        )
        for fd in self.inherited:
            os.set_inheritable(fd, True)
            self._stack.callback(os.close, fd)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.sweep()
        finally:
            self._stack.close()

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    @property
    def workspace(self) -> Path:
        return self.root / "work"

    @property
    def secrets(self) -> list[bytes]:
        return [secret.encode() for secret in (*self._secrets, self._planted)] + self._shadow()

    @property
    def env(self) -> dict[str, str]:
        return {
            "WIN": self.win,
            "MARK": self._mark,
            "WORK": str(self.workspace),
            "OUTSIDE": str(self.outside),
            "CANARY": str(self.outside / "canary.txt"),
            "TARGET": str(self.outside / "target.txt"),
            "OWNED": str(self.outside / "owned.txt"),
            "OPEN": str(self.outside / "open"),
            "OTHER": str(self.root / "other"),
            "REAL_HOME": str(self.root / "home"),
            "VICTIM": str(self._victim.pid),
            "HARNESS": str(os.getpid()),
            "HELD_AT": str(self._held_at),
            "HELD_SIZE": str(len(self._secrets[3])),
            "SHM_KEY": str(self._shm_key),
            "HOST_IPC": os.readlink("/proc/self/ns/ipc"),
            **self._listeners.env,
        }

    def begin(self) -> None:
        """Everything as it was, and remembered; a new mark for what the next attack starts."""
        self.round += 1
        self.answers = True
        self._mark = _new_mark()
        if self._victim.poll() is not None:
            self._start_victim()
        self._plant()
        self._listeners.forget()
        os.set_blocking(self._hits, False)
        _drained(self._hits)
        self._victim_before = self._victim_state()
        self._before = self._fingerprint()

    def sweep(self) -> None:
        """End what an attack has left behind, and remove what it has written."""
        for pid in self._marked():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for spot in _reachable():
            Path(spot, self._mark).unlink(missing_ok=True)
        for path in self.workspace.iterdir():
            if path.name not in (".git", ".mainspring"):
                subprocess.run(["rm", "-rf", str(path)], check=False)

    def is_touched(self) -> bool:
        return self._fingerprint() != self._before

    def is_reached(self) -> bool:
        return self._listeners.is_reached()

    def is_victim_touched(self) -> bool:
        """After a moment of grace: a killed process takes a while to go."""
        with suppress(subprocess.TimeoutExpired):
            self._victim.wait(_GRACE_SECONDS)
        return (
            self._victim.poll() is not None
            or _drained(self._hits) != b""
            or self._victim_state() != self._victim_before
        )

    def is_marked_running(self) -> bool:
        """After a moment of grace: a killed process takes a while to go."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while is_running := bool(self._marked()):
            if time.monotonic() > deadline:
                break
        return is_running

    def is_beating(self) -> bool:
        """Whether something still writes to the file that the attack kept writing to."""
        beat = self.workspace / "beat"
        before = beat.stat().st_size if beat.exists() else 0
        threading.Event().wait(_BEAT_SECONDS)  # as long as a beat may take to be seen
        return beat.exists() and beat.stat().st_size > before

    def written_inside(self) -> bytes:
        """What stands in small files of the workspace: a secret may be carried off in one."""
        found = b""
        for folder, _, names in os.walk(self.workspace):
            if not folder.startswith(str(self.workspace / ".")):
                paths = [Path(folder, name) for name in names[:50]]
                found += b"".join(_small(path) for path in paths)
        return found

    def workspace_bytes(self) -> int:
        walked = os.walk(self.workspace)
        paths = [Path(folder, name) for folder, _, names in walked for name in names]
        return sum(path.lstat().st_size for path in paths if not path.is_symlink())

    def _plant(self) -> None:
        outside = self.outside
        for folder in (outside, outside / "open", self.root / "home/.ssh", self.root / "other"):
            folder.mkdir(parents=True, exist_ok=True)
        for path in (outside / "open").iterdir():
            if not path.is_socket() and path.name != "target.txt":
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (outside / "open").chmod(0o777)
        outside.chmod(0o755)
        (self.root / "other").chmod(0o777)
        self._file(outside / "canary.txt", self._secrets[0], 0o644)
        self._file(outside / ("named-" + self._secrets[1]), "", 0o644)
        self._file(outside / "held.txt", self._secrets[0], 0o644)
        self._file(outside / "target.txt", "as it was\n", 0o666)
        self._file(outside / "owned.txt", "as it was\n", 0o644)
        self._file(outside / "open/target.txt", "as it was\n", 0o666)
        self._file(self.root / "home/.bashrc", "# as it was\n", 0o644)
        self._file(self.root / "home/.ssh/id_ed25519", self._secrets[2], 0o644)
        self._file(self.root / "other/notes.txt", self._secrets[7], 0o666)
        (self.workspace / ".git/hooks").mkdir(parents=True, exist_ok=True)
        self._file(self.workspace / ".git/config", "[core]\n\tbare = false\n", 0o644)
        self._file(self.workspace / ".git/HEAD", "ref: refs/heads/main\n", 0o644)
        (self.workspace / ".mainspring").mkdir(exist_ok=True)
        (self.workspace / ".mainspring").chmod(0o700)
        self._file(self.workspace / ".mainspring/secret.txt", self._secrets[8], 0o600)

    def _file(self, path: Path, content: str, mode: int) -> None:
        if path.is_symlink() or not path.is_file() or path.stat().st_nlink > 1:
            path.unlink(missing_ok=True)
        if not path.exists() or path.read_text() != content:
            path.write_text(content)
        if path.lstat().st_mode & 0o7777 != mode:
            path.chmod(mode)

    def _start_victim(self) -> None:
        self._shm_key = 0x4D530000 + secrets.randbelow(0xFFFF)
        held = self._secrets[3]
        self._victim = subprocess.Popen(
            [
                *(sys.executable, "-S", "-c", _VICTIM),
                *(self._secrets[4], str(self.outside / "held.txt"), str(self._shm_key)),
            ],
            env={"HELD": held[::-1], "SHARED": self._secrets[5]},
            cwd=self.outside,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(_end, self._victim)
        assert self._victim.stdout is not None
        self._hits = self._victim.stdout.fileno()
        self._held_at, segment = map(int, self._victim.stdout.readline().split())
        self._stack.callback(ctypes.CDLL(None).shmctl, segment, 0, None)

    def _victim_state(self) -> tuple[object, ...]:
        pid = self._victim.pid
        limits = Path(f"/proc/{pid}/limits").read_bytes()
        adjusted = Path(f"/proc/{pid}/oom_score_adj").read_bytes()
        return limits, adjusted, os.sched_getaffinity(pid), os.getpriority(os.PRIO_PROCESS, pid)

    def _marked(self) -> list[int]:
        """Processes that this attack has started, and no others."""
        assert len(self._mark) > len("mark-"), "an empty mark would be borne by every process"
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        mine = (os.getpid(), os.getppid())
        return [pid for pid in pids if pid not in mine and _is_marked(pid, self._mark.encode())]

    def _fingerprint(self) -> list[object]:
        places = [self.outside, self.root / "home", self.root / "other"]
        git, ours = self.workspace / ".git", self.workspace / ".mainspring"
        found: list[object] = [sorted(os.listdir(self.root)), self.workspace.lstat().st_ino]
        found += [_mark_of(path) for place in (*places, ours) for path in _tree(place)]
        found += [_mark_of(path) for path in (git / "config", *_tree(git / "hooks"))]
        found += [spot for spot in _reachable() if Path(spot, self._mark).exists()]
        found += [path.name for path in self.workspace.rglob("*") if _is_dangerous(path)]
        return found

    def _shadow(self) -> list[bytes]:
        try:
            return Path("/etc/shadow").read_bytes().splitlines()[:1]
        except OSError:
            return []


def fresh_root() -> Path:
    """Where whoever the sandbox becomes may pass, and nobody else's files are."""
    return Path(tempfile.mkdtemp(prefix="siege-"))


def _reachable() -> list[str]:
    return [spot for spot in _SPOTS if os.access(spot, os.X_OK)]


def _new_mark() -> str:
    return "mark-" + secrets.token_hex(8)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _drained(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b""


def _is_marked(pid: int, mark: bytes) -> bool:
    for name in ("cmdline", "environ"):
        try:
            if mark in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
        except OSError:
            continue  # gone, or not ours
    return False


def _small(path: Path) -> bytes:
    try:
        if not path.is_file() or path.is_symlink() or path.stat().st_size > 1_000_000:
            return b""
        return path.read_bytes()
    except OSError:
        return b""


def _tree(place: Path) -> list[Path]:
    return [place, *sorted(place.rglob("*"))]


def _mark_of(path: Path) -> tuple[object, ...]:
    if not path.exists():
        return (str(path), "gone")
    at = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    names = tuple(os.listxattr(path, follow_symlinks=False))
    when = at.st_mtime_ns if path.is_file() else 0  # the listeners' folder lives
    return (str(path), at.st_mode, at.st_uid, at.st_gid, at.st_nlink, when, content, names)


def _is_dangerous(path: Path) -> bool:
    """A device, or a program that gives whoever starts it the rights of another."""
    mode = path.lstat().st_mode
    is_program = path.is_file() and not path.is_symlink()
    return bool(is_program and mode & 0o6000) or path.is_block_device() or path.is_char_device()
