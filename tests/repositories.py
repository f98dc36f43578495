"""Small git repositories of tests, made by real git."""

import subprocess
from pathlib import Path

_WHO = ("-c", "user.name=A Person", "-c", "user.email=person@example.test")


def git(at: Path, *arguments: str) -> str:
    """What it says."""
    line = ["git", *_WHO, *arguments]
    return subprocess.run(line, cwd=at, check=True, capture_output=True, text=True).stdout.strip()


def repository(at: Path) -> Path:
    """With two files and one commit, on the branch main."""
    at.mkdir(parents=True)
    git(at, "init", "--quiet", "--initial-branch=main", "--template=")
    (at / "a.txt").write_text("one\n")
    (at / "b.txt").write_text("two\n")
    git(at, "add", ".")
    git(at, "commit", "--quiet", "--message=begin")
    return at
