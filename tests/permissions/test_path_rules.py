"""What a rule's pattern is relative to, what links do to it, and what is protected."""

import pytest
from tests.permissions.cases import HOME, WORKSPACE, place
from tests.row_checks import for_each

from mainspring.core.tool import SAFE_READ
from mainspring.harness.permissions.call_analysis import analyze_call
from mainspring.harness.permissions.path_rules import (
    PathAccess,
    PatternRoots,
    absolute_path,
    forbids_path,
    is_inside,
    permits_path,
)
from mainspring.harness.permissions.protected_files import is_protected

ROOTS = PatternRoots(folder="/srv/rules", cwd=WORKSPACE, home=HOME)


def path_access(link: str, target: str | None = None, *, is_folder: bool = False) -> PathAccess:
    return PathAccess(link=link, target=target or link, access="read", is_folder=is_folder)


@for_each(
    ("specifier", "path"),
    [
        ("//etc/hosts", "/etc/hosts"),
        ("//etc/**", "/etc/ssl/x"),
        ("//**/.env", "/srv/x/.env"),
        ("~/.zshrc", f"{HOME}/.zshrc"),
        ("~/notes/**", f"{HOME}/notes/a/b"),
        ("/docs/*.md", "/srv/rules/docs/a.md"),
        ("docs/*.md", f"{WORKSPACE}/docs/a.md"),
        ("./docs/*.md", f"{WORKSPACE}/docs/a.md"),
        ("*.md", f"{WORKSPACE}/deep/down/a.md"),
        ("../other/*.md", f"{HOME}/other/a.md"),
    ],
)
def test_a_pattern_is_relative_to_its_prefix(specifier: str, path: str):
    assert permits_path(specifier, path_access(path), ROOTS)
    assert forbids_path(specifier, path_access(path), ROOTS)


@pytest.mark.parametrize(
    ("specifier", "path"),
    [
        ("/docs/*.md", f"{WORKSPACE}/docs/a.md"),
        ("docs/*.md", "/srv/rules/docs/a.md"),
        ("*.md", "/elsewhere/a.md"),
        ("docs/*.md", f"{WORKSPACE}/docs/deep/a.md"),
        ("**", WORKSPACE),
        ("**", f"{WORKSPACE}-2/a"),
    ],
)
def test_a_pattern_does_not_match_elsewhere(specifier: str, path: str):
    assert not permits_path(specifier, path_access(path), ROOTS)


def test_a_link_is_allowed_with_its_target_and_denied_with_either():
    out = path_access(f"{WORKSPACE}/link", "/etc/shadow")
    back = path_access("/elsewhere/link", f"{WORKSPACE}/a")
    assert not permits_path("**", out, ROOTS)
    assert not permits_path("**", back, ROOTS)
    assert forbids_path("//etc/**", out, ROOTS)
    assert forbids_path("link", out, ROOTS)


def test_deny_patterns_match_case_insensitively_and_include_the_folder():
    assert forbids_path("Secrets/", path_access(f"{WORKSPACE}/sEcrets"), ROOTS)
    assert forbids_path("secrets/**", path_access(f"{WORKSPACE}/secrets"), ROOTS)
    assert not permits_path("Secrets/**", path_access(f"{WORKSPACE}/secrets/a"), ROOTS)


def test_searching_a_folder_is_allowed_only_if_everything_in_it_is():
    folder = path_access(f"{WORKSPACE}/docs", is_folder=True)
    assert permits_path("docs/**", folder, ROOTS)
    assert permits_path("docs", folder, ROOTS)
    assert not permits_path("docs/*.md", folder, ROOTS)


@for_each(
    "path",
    [
        "/w/.git/config",
        "/w/.git",
        "/w/sub/.GIT/hooks/x",
        "/w/.claude/settings.json",
        "/w/.npmrc",
        "/w/.mainspring/settings.local.json",
        "/h/.BashRC",
        "/w/.mcp.json",
        "/w/.vscode/tasks.json",
        "/h/.gitconfig",
        "/w/.idea/x",
        "/w/.husky/pre-commit",
        "/w/.devcontainer/x",
        "/h/.ripgreprc",
        "/w/.cursor/x",
        "/w/.gemini/x",
        "/w/.codex/config.toml",
        "/w/.zed/x",
        "/w/.windsurf/x",
        "/w/.continue/x",
        "/w/.opencode/x",
        "/w/.mise.toml",
        "/w/mise.toml",
        "/w/.config/mise/config.toml",
        "/w/sub/.tool-versions",
        "/w/lefthook.yml",
        "/w/.Rprofile",
        "/w/a.code-workspace",
        "/w/.yarn/releases/yarn.cjs",
        "/w/.g\u200cit/config",
        "/w/.git /x",
    ],
)
def test_paths_that_control_execution_are_protected(path: str):
    assert is_protected(path)


@for_each(
    "path",
    [
        "/w/git",
        "/w/.gitignore",
        "/w/a.git/x",
        "/w/src/x.py",
        "/w/Makefile",
        "/w/AGENTS.md",
        "/w/package.json",
        "/w/.github/workflows/ci.yml",
        "/w/.config/x",
        "/w/.yarn/cache/x",
        "",
    ],
)
def test_other_paths_are_not_protected(path: str):
    assert not is_protected(path)


def test_a_path_is_made_absolute_lexically():
    assert absolute_path("a/../../b", cwd="/x/y", home=HOME) == "/x/b"
    assert absolute_path("~/a", cwd="/x", home=HOME) == f"{HOME}/a"
    assert absolute_path("//etc//x", cwd="/x", home=HOME) == "/etc/x"


def test_a_name_prefix_is_not_a_parent_folder():
    assert is_inside("/a/b", ("/a",))
    assert is_inside("/a", ("/a/",))
    assert is_inside("/a", ("/",))
    assert not is_inside("/ab", ("/a",))
    assert not is_inside("", ("/a",))


@for_each(
    ("given", "expected"),
    [
        ({"pattern": "**/*.py"}, WORKSPACE),
        ({"pattern": "src/**"}, f"{WORKSPACE}/src"),
        ({"pattern": "../*"}, HOME),
        ({"pattern": "/etc/*"}, "/etc"),
        ({"pattern": "/*"}, "/"),
        ({"pattern": "*/../../../etc/*"}, "/"),
        ({"pattern": "*.md", "path": "docs"}, f"{WORKSPACE}/docs"),
        ({"pattern": "~/x"}, f"{WORKSPACE}/~/x"),
    ],
)
def test_a_glob_covers_the_folder_it_starts_in(given: dict[str, str], expected: str):
    [found] = analyze_call("glob", given, SAFE_READ, place()).paths
    assert (found.link, found.is_folder) == (expected, True)
