"""Runs a project's tests, keeps what came of it, and reports on before and after."""

from __future__ import annotations

import difflib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path("project")
KEPT = Path("evidence")
TESTS = [sys.executable, "-B", "-m", "unittest", "discover", "-v", "-t", ".", "-s", "tests"]


def run(name: str) -> None:
    """Run the tests; what they printed, and the sources they ran on, are kept under a name."""
    KEPT.mkdir(exist_ok=True)
    sources = KEPT / name
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(PROJECT, sources, ignore=shutil.ignore_patterns("__pycache__"))
    ended = subprocess.run(
        TESTS,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    (KEPT / f"{name}.txt").write_text(ended.stdout, encoding="utf-8")
    (KEPT / f"{name}.json").write_text(json.dumps(measured(ended.returncode, ended.stdout)))
    print(ended.stdout)
    print(f"{name}: {sentence(name)}; kept as {KEPT / name}.txt")


def measured(status: int, output: str) -> dict[str, int]:
    """How many tests there were and how many did not pass, by what unittest printed."""
    ran = re.search(r"^Ran (\d+) test", output, re.MULTILINE)
    wrong = re.findall(r"^(?:FAIL|ERROR): ", output, re.MULTILINE)
    return {"status": status, "ran": int(ran[1]) if ran else 0, "wrong": len(wrong)}


def read(name: str) -> dict[str, int]:
    try:
        return json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        sys.exit(f"there is no evidence `{name}`: run it first")


def sentence(name: str) -> str:
    found = read(name)
    passed = found["ran"] - found["wrong"]
    return f"{passed} of {found['ran']} tests pass, exit status {found['status']}"


def report() -> None:
    """Write REPORT.md, unless the evidence does not show a fix."""
    before, after = read("before"), read("after")
    cause = KEPT / "cause.md"
    if not before["wrong"]:
        sys.exit("no report: nothing failed before the change")
    if after["status"]:
        sys.exit("no report: the tests do not pass after it")
    if after["ran"] < before["ran"] or sources("before", "tests") != sources("after", "tests"):
        sys.exit("no report: the tests themselves were changed")
    if not cause.is_file():
        sys.exit(f"no report: say in {cause} what was wrong and why")
    Path("REPORT.md").write_text(
        "\n".join(
            [
                cause.read_text(encoding="utf-8").strip(),
                "",
                "## What changed",
                fenced("diff", changes()),
                "## Before",
                f"{sentence('before')}.",
                fenced("text", (KEPT / "before.txt").read_text(encoding="utf-8")),
                "## After",
                f"{sentence('after')}.",
                fenced("text", (KEPT / "after.txt").read_text(encoding="utf-8")),
            ]
        ),
        encoding="utf-8",
    )
    print(f"wrote REPORT.md; before: {sentence('before')}; after: {sentence('after')}")


def sources(name: str, below: str = ".") -> dict[str, str]:
    """Files of one run by their path in the project."""
    root = KEPT / name
    files = sorted((root / below).rglob("*.py"))
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


def changes() -> str:
    old, new = sources("before"), sources("after")
    lines: list[str] = []
    for path in sorted({*old, *new}):
        lines += difflib.unified_diff(
            old.get(path, "").splitlines(),
            new.get(path, "").splitlines(),
            f"a/{path}",
            f"b/{path}",
            lineterm="",
        )
    return "\n".join(lines)


def fenced(kind: str, text: str) -> str:
    return f"\n```{kind}\n{text.strip()}\n```\n"


def main(arguments: list[str]) -> None:
    if arguments == ["report"]:
        report()
    elif len(arguments) == 2 and arguments[0] == "run" and arguments[1] in ("before", "after"):
        run(arguments[1])
    else:
        sys.exit("usage: evidence.py run before|after, or evidence.py report")


if __name__ == "__main__":
    main(sys.argv[1:])
