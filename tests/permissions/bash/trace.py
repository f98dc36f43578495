"""Run a shell text under strace: the files it opened, what it tried to change, ran and sent to.

It runs as another uid where we are root, cannot reach any host, and is killed after a time.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.permissions.bash.help_options import words

UID = 61234
"""Nobody's; only used where the tests run as root."""
_SECONDS = 10
_MAX_OUTPUT = 200_000
_OPENS = ("open", "openat", "openat2", "creat")
_CHANGES = words(
    "unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat symlink symlinkat"
    " chmod fchmodat fchmodat2 chown lchown fchownat truncate mknod mknodat utimensat utime utimes"
    " futimesat setxattr lsetxattr removexattr lremovexattr mount umount2"
)
_SENDS = ("connect", "sendto", "sendmsg", "sendmmsg", "bind")
_KILLS = ("kill", "tkill")
_WRITES = ("write", "writev", "pwrite64")
_FORKS = ("clone", "clone3", "fork", "vfork")
_MOVES = ("chdir", "fchdir")
_RUNS = ("execve", "execveat")
_TRACED = (*_OPENS, *_CHANGES, *_SENDS, *_KILLS, *_WRITES, *_FORKS, *_MOVES, *_RUNS)
# A syscall that a machine does not have is no error; what would reach out fails at once.
_STRACE = (
    *("prlimit", f"--cpu={_SECONDS}", "--fsize=50000000", "--core=0"),
    *("strace", "-ff", "-qq", "-y", "-s", "4096", "-e", "signal=none", "--seccomp-bpf"),
    *("-e", "trace=" + ",".join(f"?{name}" for name in _TRACED)),
    *("-e", "inject=" + ",".join(_SENDS) + ":error=ENETUNREACH"),
    *("-e", "inject=" + ",".join(_KILLS) + ":error=EPERM"),
)
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+|\?)(?:<(.*)>)?(?: .*)?", re.DOTALL)
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>, )?"((?:[^"\\]|\\.)*)"')
_FOLDER = re.compile(r"\d+<(.*)>")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FORKED = re.compile(r"^(?:clone3?|v?fork)\(.*\)\s+= (\d+)", re.MULTILINE)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_NAMED_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f"}


@dataclass(slots=True)
class Trace:
    reads: list[str] = field(default_factory=list[str])
    """Absolute paths of what was opened, with links followed."""
    silent_reads: list[str] = field(default_factory=list[str])
    """By programs that also open what they do not show: git compares and counts, df asks which
    disk a file is on. See `written`."""
    written: list[str] = field(default_factory=list[str])
    """What was written to files and pipes by any program: the beginning of each piece."""
    changes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """System call and path, also where it failed."""
    execs: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    """Path and words."""
    sends: list[str] = field(default_factory=list[str])
    kills: list[str] = field(default_factory=list[str])
    output: bytes = b""
    timed_out: bool = False


def unavailable() -> str | None:
    """Why nothing can be traced on this machine, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        trace = Tracer(Path(folder)).run("cat /dev/null", Path(folder))
    return None if "/dev/null" in trace.reads else "strace cannot trace here"


class Tracer:
    """Keeps its notes in a folder of its own in `root`."""

    def __init__(self, root: Path, path: str = "/usr/local/bin:/usr/bin:/bin") -> None:
        self._notes = root / "notes"
        self._notes.mkdir()
        self._scratch = root / "scratch"
        self._scratch.mkdir()
        self._home = root / "home"
        self._home.mkdir(exist_ok=True)
        self._path = path
        for folder in (self._notes, self._scratch):
            _give(folder)

    @property
    def scratch(self) -> Path:
        """Its TMPDIR: what is changed there is nobody's loss."""
        return self._scratch

    def run(self, text: str, cwd: Path, *, seconds: float = _SECONDS) -> Trace:
        trace, is_root = Trace(), os.geteuid() == 0
        command = [*_STRACE, "-o", str(self._notes / "t"), "bash", "--norc", "--noprofile", "-c"]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*command, text],
                cwd=cwd,
                env={
                    "PATH": self._path,
                    "HOME": str(self._home),
                    "TMPDIR": str(self._scratch),
                    "LC_ALL": "C.UTF-8",
                    "TERM": "dumb",
                    "PWD": str(cwd),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=UID if is_root else None,
                group=UID if is_root else None,
                extra_groups=[] if is_root else None,
            )
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                trace.timed_out = True
            finally:
                self._end(process)
            output.seek(0)
            trace.output = output.read(_MAX_OUTPUT)
        self._read_notes(trace, str(cwd))
        return trace

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """strace lets go of what it traces when it is killed, so each of those is killed, too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if _session(pid) == process.pid:
                    os.kill(pid, signal.SIGKILL)

    def _pids(self) -> Iterator[int]:
        for item in self._notes.iterdir():
            yield int(item.suffix[1:])

    def _read_notes(self, trace: Trace, cwd: str) -> None:
        notes = {int(item.suffix[1:]): item for item in sorted(self._notes.iterdir())}
        children: set[int] = set()
        # A process or thread is what it comes from, until it runs another program.
        lines = {pid: each.read_text(errors="surrogateescape") for pid, each in notes.items()}
        for text in lines.values():
            children.update(map(int, _FORKED.findall(text)))
        waiting = [(pid, cwd, False) for pid in notes if pid not in children]
        while waiting:
            pid, at, is_silent = waiting.pop(0)
            reader = _Reader(trace, at, is_silent=is_silent)
            for line in lines.pop(pid, "").splitlines():
                if found := _CALL.fullmatch(line):
                    reader.note(found[1], found[2], int(found[3].replace("?", "-1")), found[4])
            waiting.extend(reader.forked)
        for note in notes.values():
            note.unlink()


class _Reader:
    """Notes what one process did."""

    def __init__(self, trace: Trace, cwd: str, *, is_silent: bool) -> None:
        self._trace = trace
        self._cwd = cwd
        self._is_silent = is_silent
        self.forked: list[tuple[int, str, bool]] = []

    def note(self, name: str, arguments: str, result: int, opened: str | None) -> None:
        if name in _OPENS:
            self._note_open(name, arguments, result, opened)
        elif name in _FORKS:
            self.forked.append((result, self._cwd, self._is_silent))
        elif name in _RUNS:
            self._note_exec(arguments, result)
        elif name in _MOVES:
            self._note_move(arguments, result)
        else:
            self._note_effect(name, arguments)

    def _note_effect(self, name: str, arguments: str) -> None:
        trace = self._trace
        if name in _WRITES:
            trace.written.append(arguments)
        elif name in _CHANGES:
            paths = [self._joined(*item) for item in _PATH.findall(arguments)]
            trace.changes.extend((name, path) for path in paths or [arguments])
        elif (
            name in _SENDS
            and re.search("AF_INET|AF_PACKET", arguments)
            and not (name == "bind" and re.search(r'"(?:::1|127\.0\.0\.1)"', arguments))
        ):
            trace.sends.append(f"{name}({arguments})")
        elif name in _KILLS and not re.match(r"\d+, (?:0|SIG_0)", arguments):
            trace.kills.append(f"{name}({arguments})")

    def _note_move(self, arguments: str, result: int) -> None:
        found = _PATH.search(arguments) or _FOLDER.search(arguments)
        if result == 0 and found:
            self._cwd = self._joined("", found[found.lastindex or 0])

    def _joined(self, folder: str, path: str) -> str:
        """With the links of folders followed, as the kernel does: `link/..` is not where it is."""
        whole = os.path.join(self._cwd, _plain(folder), _plain(path)).rstrip("/") or "/"
        above, name = os.path.split(whole)
        if name in (".", ".."):
            return os.path.realpath(whole)
        return os.path.join(os.path.realpath(above), name)

    def _note_exec(self, arguments: str, result: int) -> None:
        if result == 0 and (path := _PATH.search(arguments)):
            given = list(map(_plain, _WORD.findall(arguments[path.end() :])))
            self._trace.execs.append((self._joined(path[1] or "", path[2]), given))
            self._is_silent = os.path.basename(path[2]) in ("git", "df")

    def _note_open(self, name: str, arguments: str, result: int, opened: str | None) -> None:
        path = _PATH.search(arguments)
        named = self._joined(path[1] or "", path[2]) if path else arguments
        if name == "creat" or re.search(r"O_(?:WRONLY|RDWR|CREAT|TRUNC|TMPFILE)", arguments):
            self._trace.changes.append((name, named))
        is_content = "O_DIRECTORY" not in arguments and "O_PATH" not in arguments
        if result >= 0 and is_content and "O_WRONLY" not in arguments:
            reads = self._trace.silent_reads if self._is_silent else self._trace.reads
            reads.append(_plain(opened) if opened else named)


def _plain(text: str) -> str:
    """strace writes bytes as C does."""
    raw = text.encode(errors="surrogateescape")
    return _ESCAPE.sub(_unescaped, raw).decode(errors="surrogateescape")


def _unescaped(found: re.Match[bytes]) -> bytes:
    body = found[1]
    if body[:1] in b"01234567":
        return bytes([int(body, 8) & 0xFF])
    return _NAMED_ESCAPES.get(body, body)


def _session(pid: int) -> int:
    return os.getsid(pid)


def _give(folder: Path) -> None:
    if os.geteuid() == 0:
        os.chown(folder, UID, UID)
