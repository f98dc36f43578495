"""README's commands and the examples, in the kind of machine where this runs: one line for each,
with what it printed last. `python bench/readme_commands.py [FOLDER]`; with `.ci/kind KIND` before
it, in that kind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PROGRAMS = ("approval_callback", "guardrail", "recorded_test", "image_in")
"""Of examples/python, besides these, all run by themselves; these ask, or need more."""
_SECONDS = 300
_SERVER_SECONDS = 60
_POLL_SECONDS = 0.1
_SHOWN = 150
"""Characters of an output."""

IN_A_PROJECT = (
    ("doctor",),
    ("init", "helper", "--yes"),
    ("validate", "helper"),
    ("run", "--model", "scripted:demo", "Why does the build fail?"),
    ("-p", "hello", "--model", "scripted:demo", "--output-format", "json"),
    ("sessions", "ls"),
    ("log", "show", "last"),
    ("context", "show", "last", "--call", "1"),
    ("replay", "last"),
    ("sessions", "rewind", "last"),
    ("cost", "--by", "model"),
    ("insights",),
    ("policy", "check", "Bash(ls)"),
    ("policy", "trust"),
    ("workflow", "new", "fix-and-check"),
    ("workflow", "validate", "fix-and-check"),
)
_SCRIPT = ("--model", "scripted:offline.yaml")
_FIX = "A test of project/ fails. Fix it, and show that it is fixed."
_READ = "What will the array produce in 2032, and is it enough to serve the loans?"
_DRAW = "What does data/crossings.csv say about the year? Make charts and a page as PDF."
IN_EXAMPLES = (
    ("repo-maintainer", ("run", *_SCRIPT, _FIX), "REPORT.md"),
    ("research-analyst", ("run", *_SCRIPT, _READ), "out/report.md"),
    ("data-analyst", ("run", *_SCRIPT, _DRAW), "out"),
)

WORKFLOW = "reviewed-change"
STEPS = (
    ("workflow", "trust", WORKFLOW),
    ("workflow", "run", WORKFLOW, "durations with several units", *_SCRIPT),
    ("workflow", "respond", "last", "approve"),
    ("workflow", "resume", "last", *_SCRIPT),
    ("workflow", "show", "last"),
)
_WAITS = 3
"""The exit status of a run that stops at a gate."""


class Trial:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed: list[str] = []
        self._command = [sys.executable, "-m", "mainspring"]
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith("MAINSPRING_") or name == "MAINSPRING_CONTAINER_IS_BOUNDARY"
        }
        self.environment = {**kept, "HOME": str(folder), "PYTHONPATH": str(ROOT / "src")}

    def mainspring(self, place: Path, *words: str, made: str = "") -> None:
        """Run a command; `made` is what must exist then."""
        self._report(" ".join(words)[:60], place, [*self._command, *words], made)

    def python(self, place: Path, program: str) -> None:
        self._report(f"python {program}", place, [sys.executable, program], "")

    def make(self, target: str) -> None:
        self._report(f"make {target}", ROOT, ["make", target], "")

    def _report(self, name: str, place: Path, command: list[str], made: str) -> None:
        ran = subprocess.run(
            command,
            cwd=place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        lines = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        warnings = [line for line in lines if "no commands can be run here" in line]
        is_right = ran.returncode in (0, _WAITS) and (place / made).exists()
        self.tell(name, is_right, (warnings or lines or ["(no output)"])[-1])

    def tell(self, name: str, is_right: bool, line: str) -> None:
        self.failed += [] if is_right else [name]
        print(f"{'ok' if is_right else 'FAILED':<7}{name:<62}{line[:_SHOWN]}", flush=True)

    @contextmanager
    def service(self) -> Generator[str]:
        """`serve`, as README says; root has to say as whom."""
        identity = ("--allow-root",) if os.geteuid() == 0 else ()
        command = [*self._command, "serve", "--port", "0", *("--model", "scripted:demo"), *identity]
        log = self.folder / "serve.log"
        (self.folder / "service").mkdir()
        with log.open("w") as output:
            server = subprocess.Popen(
                command,
                cwd=self.folder / "service",
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        try:
            deadline = time.monotonic() + _SERVER_SECONDS
            while "http://127.0.0.1:" not in log.read_text():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(log.read_text()[-_SHOWN:])
                time.sleep(_POLL_SECONDS)
            port = log.read_text().partition("http://127.0.0.1:")[2].split()[0].strip("/,.")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def main() -> None:
    folder = Path(tempfile.mkdtemp() if len(sys.argv) == 1 else sys.argv[1]).resolve()
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # sessions that have a uid of their own enter it
    trial = Trial(folder)
    trial.make("demo")
    project = folder / "project"
    project.mkdir()
    for words in IN_A_PROJECT:
        trial.mainspring(project, *words)
    for name, words, made in IN_EXAMPLES:
        place = folder / name
        shutil.copytree(EXAMPLES / name, place, ignore=shutil.ignore_patterns(".mainspring"))
        trial.mainspring(place, "policy", "trust")
        trial.mainspring(place, *words, made=made)
    place = folder / WORKFLOW
    shutil.copytree(EXAMPLES / WORKFLOW, place, ignore=shutil.ignore_patterns(".mainspring"))
    git = ("git", "-c", "user.name=me", "-c", "user.email=me@example.com")
    for command in (("init",), ("add", "."), ("commit", "--message", "Before the change")):
        subprocess.run([*git, *command], cwd=place, check=True, capture_output=True)
    trial.mainspring(place, "policy", "trust")
    for words in STEPS:
        trial.mainspring(place, *words)
    programs = folder / "python"
    shutil.copytree(EXAMPLES / "python", programs, ignore=shutil.ignore_patterns(".mainspring"))
    trial.environment["MAINSPRING_MODEL"] = "scripted:offline.yaml"
    for program in sorted(programs.glob("*.py")):
        if program.stem not in PROGRAMS:
            trial.python(programs, program.name)
    try:
        with trial.service() as url, urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
            trial.tell("serve", answer.status == 200, answer.read().decode())
    except (RuntimeError, OSError) as error:
        trial.tell("serve", False, str(error))
    print(f"{len(trial.failed)} failed" if trial.failed else "all worked")
    sys.exit(1 if trial.failed else 0)


if __name__ == "__main__":
    main()
