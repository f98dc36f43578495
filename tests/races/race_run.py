"""One run of the kit: a folder with canaries and workspaces, what is counted, and who won."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.races import hostile
from tests.races.canaries import Canaries
from tests.repositories import git, repository

Sandbox = Literal["bubblewrap", "landlock"]
SECONDS = 60.0
_MOST_TOLD = 20
_MOST_BYTES = 1 << 20

PROBE = """
import os, sys
MARK = b"canary-" + b"token-"
def look(folder, depth):
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names[:200]:
        path = os.path.join(folder, name)
        if os.path.islink(path) and depth:
            continue
        if os.path.isdir(path) and depth < 4:
            look(path, depth + 1)
        elif os.path.isfile(path):
            try:
                with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                    content = file.read(65536)
                if MARK in content:
                    print("FOUND", path, content.decode("utf-8", "replace"))
                    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
                    os.write(file, b"changed")
                    os.close(file)
            except OSError:
                pass
    try:
        os.close(os.open(os.path.join(folder, "planted"), os.O_WRONLY | os.O_CREAT, 0o644))
    except OSError:
        pass
for each in (".", *sys.argv[1:]):
    look(each, 0)
"""
"""What a program of a new sandbox does first: it reads all it can reach, and leaves something."""


@dataclass(slots=True)
class Scene:
    sandbox: Sandbox
    root: Path
    canaries: Canaries
    seed: int
    seconds: float
    random: random.Random
    counts: Counter[str] = field(default_factory=Counter[str])
    reasons: Counter[str] = field(default_factory=Counter[str])
    """Of what the product refused to do, which it may."""
    wins: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])
    """Exceptions that came out of the product, which neither reads nor changes anything."""

    def workspace(self, name: str) -> Path:
        """A project with all that somebody would like to have links in the place of."""
        self.counts["workspaces"] += 1
        place = repository(self.root / f"{name}-{self.counts['workspaces']}")
        for path in (*hostile.FILES, "src/deep/more.txt"):
            if path.startswith((".git/", ".gitmodules")):
                continue
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"---\nname: one\ndescription: {path}\n---\nold words\n")
        git(place, "add", ".")
        git(place, "commit", "--quiet", "--message=all")
        return place

    def command(self) -> str:
        """Of the hostile program, for a shell in a sandbox."""
        source = Path(hostile.__file__).read_text()
        there = f"cat > hostile.py <<'END_OF_PROGRAM'\n{source}\nEND_OF_PROGRAM\n"
        victims = ":".join(self.canaries.folders)
        lasting = self.seconds + SECONDS
        return f"{there}exec python3 -I hostile.py {self.next_seed()} {victims} {lasting} inside"

    def probe(self) -> str:
        """Of a program that looks what it can reach."""
        return f"timeout 10 python3 -I -c '{PROBE}' {' '.join(self.canaries.folders)}"

    def next_seed(self) -> int:
        return self.random.randrange(1 << 30)

    @contextmanager
    def stand_in(self, workspace: Path, uid: int, focus: str = "") -> Generator[None]:
        """The hostile program outside, for as long as the block lasts. What is Mainspring's own in
        the workspace it would not reach from inside."""
        victims = ":".join(self.canaries.folders)
        with tempfile.TemporaryFile() as said:
            python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
            source = Path(hostile.__file__).read_text()
            lasting = str(self.seconds + SECONDS)
            process = subprocess.Popen(
                [python, "-I", "-c", source, str(self.next_seed()), victims, lasting, focus],
                cwd=workspace,
                stdin=subprocess.DEVNULL,
                stdout=said,
                user=uid if os.geteuid() == 0 else None,
                group=uid if os.geteuid() == 0 else None,
                extra_groups=[] if os.geteuid() == 0 else None,
            )
            try:
                yield
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
                said.seek(0)
                numbers = said.read().split()
                self.counts["swaps"] += int(numbers[-1]) if numbers else 0

    def look(self, texts: Iterable[str], *places: Path) -> None:
        """Has anybody won? By what it could read or change."""
        for text in texts:
            if self.canaries.is_in(text):
                at = text.index(self.canaries.token)
                self.wins.append(f"read: {text[max(0, at - 200) : at + 60]!r}")
        self.wins += [f"changed: {change}" for change in self.canaries.changes()]
        for place in places:
            self._look_in(str(place), str(place))

    def _look_in(self, place: str, name: str, above: int | None = None) -> None:
        """By descriptors: whoever looks by name is led out, or made to wait, like anybody else."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        with suppress(OSError):
            folder = os.open(name, flags, dir_fd=above)
            try:
                for item in os.listdir(folder):
                    self._look_at(f"{place}/{item}", item, folder)
                    self._look_in(f"{place}/{item}", item, folder)
            finally:
                os.close(folder)

    def _look_at(self, path: str, name: str, folder: int) -> None:
        with suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            opened = os.open(name, flags, dir_fd=folder)
            try:
                if self.canaries.is_in(os.read(opened, _MOST_BYTES)):
                    self.wins.append(f"brought in: {path}")
            finally:
                os.close(opened)

    def failed(self, where: str, error: BaseException | str) -> None:
        said = error if isinstance(error, str) else "".join(traceback.format_exception(error))
        self.failures.append(f"{where}: {said[-3000:]}")

    def late(self, why: str) -> None:
        """A machine with too much to do is no win, and no failure of the product's."""
        self.counts["late"] += 1
        self.reasons[f"late: {why}"[:300]] += 1

    def owner(self, workspace: Path) -> int:
        """Who a program of the session is outside: it has left a file.

        Raises:
            TimeoutError: it did not get to it.
        """
        try:
            return (workspace / "whose").lstat().st_uid
        except FileNotFoundError as error:
            raise TimeoutError(f"no program has run in {workspace.name}") from error

    def refused(self, error: BaseException) -> None:
        self.counts["refused"] += 1
        self.reasons[f"{type(error).__name__}: {error}"[:300]] += 1

    @property
    def is_lost(self) -> bool:
        return bool(self.wins or self.failures)

    def told(self, begun: float) -> str:
        counts = " ".join(f"{name}={number}" for name, number in sorted(self.counts.items()))
        lines = [
            f"sandbox={self.sandbox} uid={os.geteuid()} seed={self.seed}"
            f" seconds={time.monotonic() - begun:.0f} {counts}"
            f" wins={len(self.wins)} failures={len(self.failures)}",
            *(f"{number} times {why}" for why, number in self.reasons.most_common(_MOST_TOLD)),
            *(f"WIN {win}" for win in self.wins[:_MOST_TOLD]),
            *(f"FAILURE {failure}" for failure in self.failures[:_MOST_TOLD]),
        ]
        return "\n".join(lines)


@contextmanager
def open_scene(sandbox: Sandbox, seed: int, seconds: float) -> Generator[Scene]:
    root = Path(tempfile.mkdtemp(prefix="races-"))
    root.chmod(0o755)
    try:
        canaries = Canaries(root / "host")
        yield Scene(sandbox, root, canaries, seed, seconds, random.Random(seed))
    finally:
        shutil.rmtree(root, ignore_errors=True)
