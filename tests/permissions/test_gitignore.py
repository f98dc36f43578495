"""Patterns mean what git means by them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.core.errors import InvalidInput
from mainspring.harness.permissions.path_rules import compile_gitignore

NAMES = ["a", "b", "ab", "a.py", ".env", "B", "a-b", "[x]", "*"]
# Not `a**/b`: git takes it for `a*/b` in its manual, and for more than that in fact.
PATTERNS = [
    "a", "a/", "/a", "a/b", "/a/b/", "*", "*.py", "**", "**/", "**/b", "a/**", "a/**/b", "**/a/**",
    "a*b", "?", "??", "[ab]", "[!a]", "[^a]b", "[a-b].py", "*/b", "/*", "/*/b", "a/*", "a**b",
    "**a", ".env", ".*", r"\*", r"\[x]", "[]x]", "[[]x]", "*a*b*", "a/*/**", "**/*.py",
    "[z-a]", "a/**/**/b", "*.p?", "/**/b", r"\a", "[a-]b", "[x-]", "a-b",
]  # fmt: skip
PATHS = sorted(
    {
        *NAMES,
        *(f"{x}/{y}" for x in NAMES for y in NAMES),
        "a/b/b",
        "a/ab/b",
        "b/a/a.py",
        "b/a/b/.env",
    }
)


def ignored_by_git(folder: Path, pattern: str) -> set[str]:
    (folder / ".git/info/exclude").write_text(f"{pattern}\n", encoding="utf-8")
    found = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=folder,
        input="\0".join(PATHS),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return set(found.stdout.split("\0")) - {""}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_every_pattern_matches_the_same_paths_as_git(tmp_path: Path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=60)
    wrong: dict[str, set[str]] = {}
    for pattern in PATTERNS:
        ours = {path for path in PATHS if compile_gitignore(pattern).matches(path)}
        if difference := ours ^ ignored_by_git(tmp_path, pattern):
            wrong[pattern] = difference
    assert wrong == {}


@for_each("pattern", ["", "/", "!a", "[a", "a\\", "a//b", "a/../b", "[[:alpha:]]", "[a\\"])
def test_a_misleading_pattern_is_refused(pattern: str):
    with pytest.raises(InvalidInput):
        compile_gitignore(pattern)


def test_a_folder_pattern_matches_a_path_itself_only_if_it_is_a_folder():
    assert not compile_gitignore("build/").matches("build")
    assert compile_gitignore("build/").matches("build", is_folder=True)
    assert compile_gitignore("build/").matches("build/x")


@given(st.text("ab*?[]!-/\\.", max_size=30), st.text("ab*/.", max_size=60))
def test_any_pattern_is_refused_or_matches(pattern: str, path: str):
    try:
        found = compile_gitignore(pattern)
    except InvalidInput:
        return
    assert found.matches(path) in (True, False)


def test_a_pattern_of_many_stars_is_not_slow():
    assert not compile_gitignore("*a" * 200 + "b").matches("a" * 5000)
    assert not compile_gitignore("**/a/" * 60 + "b").matches("a/" * 300 + "c")
