"""Skills and commands as they occur in the wild: each fixture says what must come out."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.runtime.definition_files.scopes import PartLocation
from mainspring.runtime.skills.skill_file import read_command, read_skill

WILD = Path(__file__).parents[2] / "fixtures/wild"
SKILLS = PartLocation(WILD / "skills", "project")
COMMANDS = PartLocation(WILD / "commands", "project")
USUAL = "Does it. Use when asked to."
UNKNOWN = "is unknown: it is kept"
NOT_YAML = "is not YAML and is read as plain text"

# fixture -> (what differs from a plain skill, findings: (level, line, part of what is said))
Told = tuple[str, int | None, str]
READ: dict[str, tuple[dict[str, Any], list[Told]]] = {
    "plain": ({}, []),
    "tools-by-blanks": ({"allowed_tools": ("Bash(git:*)", "Bash(jq:*)", "Read")}, []),
    "tools-by-commas": ({"allowed_tools": ("Read", "Grep", "Bash(git diff *)")}, []),
    "tools-as-list": ({"allowed_tools": ("Read", "Bash(npm run test:*)")}, []),
    "tools-in-brackets": ({"allowed_tools": ("Read", "Write", "Bash(gh pr view:*)")}, []),
    "tools-other-spelling": ({"allowed_tools": ("Read",)}, []),
    "tools-disallowed": ({"disallowed_tools": ("AskUserQuestion", "Bash(rm *)")}, []),
    "hint-text": ({"argument_hint": "<issue> [branch]"}, []),
    "hint-list": ({"argument_hint": "[issue-number]"}, []),
    "hint-not-yaml": ({"argument_hint": "[file] [focus]"}, [("warning", 4, NOT_YAML)]),
    "arguments-text": ({"arguments": ("issue", "branch")}, []),
    "arguments-list": ({"arguments": ("issue", "branch")}, []),
    "for-user-only": ({"for_model": False}, []),
    "for-user-only-text": ({"for_model": False}, []),
    "for-model-only": ({"for_user": False}, []),
    "for-model-only-text": ({"for_user": False}, []),
    "forked": (
        {
            "context": "fork",
            "agent": "Explore",
            "is_background": True,
            "model": "haiku",
            "effort": "high",
        },
        [],
    ),
    "model-inherited": ({}, []),
    "paths-list": ({"paths": ("src/**/*.ts", "docs/*.md")}, []),
    "paths-text": ({"paths": ("src/**/*.{ts,tsx}", "docs/*.md")}, []),
    "paths-not-yaml": ({"paths": ("**/*.ts",)}, [("warning", 4, NOT_YAML)]),
    "hooked": (
        {
            "hooks": {
                "PreToolUse": [
                    {
                        "matcher": "Bash",
                        "hooks": [{"type": "command", "command": "./scripts/check.sh"}],
                    }
                ]
            }
        },
        [],
    ),
    "licensed": ({"license": "Apache-2.0", "compatibility": "Needs git and jq"}, []),
    "metadata-nested": (
        {
            "metadata": {
                "skill-author": "somebody",
                "version": 1.2,
                "short-description": "Short",
                "clawdbot": {"emoji": "🦀", "requires": {"bins": ["git"]}},
                "dependencies": ["a", "b"],
                "tags": ["one"],
                "globs": "*.py",
            }
        },
        [],
    ),
    "when-to-use": ({"description": f"{USUAL}\nThe user asks for it by name."}, []),
    "in-powershell": ({}, [("note", 4, "`shell` has no effect")]),
    "key-misspelt": ({"extra": {"argument-hnt": "file"}}, [("warning", 4, UNKNOWN)]),
    "version-float": ({"extra": {"version": 1.0}}, [("warning", 4, UNKNOWN)]),
    "version-date": ({"extra": {"version": "2025-11-16"}}, [("warning", 4, UNKNOWN)]),
    "not-yaml": (
        {"description": 'Use when: the user says so, e.g. "do it: now"', "license": "MIT"},
        [("warning", 3, NOT_YAML)],
    ),
    "not-yaml-continued": (
        {
            "description": "Use when: it runs over\nseveral lines that are not indented.",
            "extra": {"version": "1.0.0"},
        },
        [("warning", 3, NOT_YAML), ("warning", 5, UNKNOWN)],
    ),
    "quotes-inside": (
        {"description": "\"Quick\" checks, and 'slow' ones"},
        [("warning", 3, NOT_YAML)],
    ),
    "apostrophe": ({"description": "It's what it does"}, [("warning", 3, NOT_YAML)]),
    "with-tabs": (
        {"description": "Does it: with tabs", "metadata": {"author": "somebody"}},
        [("warning", 3, NOT_YAML)],
    ),
    "folded": ({"description": "Does it over lines."}, []),
    "nameless": ({}, []),
    "other-folder": ({"name": "another-name"}, [("warning", 2, "its folder is other-folder")]),
    "bad-name": ({"name": "My Skill!"}, [("warning", 2, "not a valid name")]),
    "name-number": ({"name": "42"}, [("warning", 2, "its folder is name-number")]),
    "given-twice": ({"license": "Apache-2.0"}, [("warning", 5, "occurs twice")]),
    "long-description": (
        {"description": ("It goes on. " * 100).strip()},
        [("warning", 3, "more than 1024")],
    ),
    "too-long-description": (
        {"description": ("It goes on and on. " * 100)[:1536]},
        [("warning", 3, "more than 1024"), ("warning", 3, "first 1536")],
    ),
    "anchored": (
        {"metadata": {"a": "b"}, "extra": {"hooks": "*all"}},
        [("warning", 6, NOT_YAML), ("warning", 6, "must be names with values")],
    ),
    "wrong-kinds": (
        {
            "extra": {
                "hooks": "none",
                "metadata": "some",
                "effort": "ludicrous",
                "context": "elsewhere",
                "user-invocable": "perhaps",
                "allowed-tools": {"Read": True},
                "model": ["opus"],
            }
        },
        [
            ("warning", 11, "must be text"),
            ("warning", 8, "must be true or false"),
            ("warning", 9, "must be a list of texts"),
            ("warning", 6, "must be one of none, low"),
            ("warning", 7, "must be one of fork"),
            ("warning", 4, "must be names with values"),
            ("warning", 5, "must be names with values"),
        ],
    ),
}
SKIPPED: dict[str, str] = {
    "headless": "has no readable frontmatter",
    "unclosed": "has no readable frontmatter",
    "a-list": "has no readable frontmatter",
    "undescribed": "has no description",
    "description-empty": "has no description",
    "description-misspelt": "has no description",
}
KEPT: dict[str, object] = {
    "origin": "ECC",
    "version": "2.1.0",
    "triggers": ["make a chart", "plot it"],
    "preamble-tier": 4,
    "tools": "Read, Grep",
    "type": "skill",
    "homepage": "https://example.com",
    "author": "somebody",
    "gbrain": {"schema": 1},
    "tags": ["one", "two"],
    "interactive": True,
    "benefits-from": ["office-hours"],
    "repo": "someone/something",
    "category": "design",
    "args": [{"name": "area", "required": False}],
    "permissions": ["network"],
    "host": "claude",
    "source": "community",
    "trusted": True,
    "execution_mode": "auto",
}
ELSEWHERE = {"group", "lowercase-file"}  # for discovery


def summarize_findings(findings: list[Any]) -> list[Told]:
    return [(finding.level, finding.line, finding.what) for finding in findings]


def test_every_fixture_is_listed_in_a_table():
    keys = {f"key-{key.replace('_', '-')}" for key in KEPT}
    named = {*READ, *SKIPPED, *keys, *ELSEWHERE}
    assert {item.name for item in SKILLS.path.iterdir()} == named


@for_each("name", READ)
def test_skills_as_published_are_read(name: str):
    expected, findings = READ[name]
    skill, said = read_skill(SKILLS.path / name / "SKILL.md", SKILLS, name)
    assert skill is not None
    plain: dict[str, Any] = {
        "name": name,
        "description": USUAL,
        "hooks": {},
        "metadata": {},
        "extra": {},
    }
    place = {key: getattr(skill, key) for key in ("file", "folder", "hash")}
    assert msgspec.to_builtins(skill) == {**plain, **place, **expected}
    assert [(level, line) for level, line, _ in summarize_findings(said)] == [
        finding[:2] for finding in findings
    ]
    assert all(
        what in each[2]
        for each, (_, _, what) in zip(summarize_findings(said), findings, strict=True)
    )


@pytest.mark.parametrize("name", SKIPPED)
def test_an_invalid_skill_is_skipped_with_a_reason(name: str):
    skill, said = read_skill(SKILLS.path / name / "SKILL.md", SKILLS, name)
    assert (skill, said[-1].level) == (None, "error")
    assert SKIPPED[name] in said[-1].what


@for_each("key", KEPT)
def test_an_unknown_key_is_kept_with_a_warning(key: str):
    name = f"key-{key.replace('_', '-')}"
    skill, said = read_skill(SKILLS.path / name / "SKILL.md", SKILLS, name)
    assert skill is not None
    assert (skill.extra, skill.allowed_tools) == ({key: KEPT[key]}, ())
    assert [(level, line) for level, line, _ in summarize_findings(said)] == [("warning", 4)]


def test_a_misspelt_key_gets_a_suggestion():
    _, said = read_skill(SKILLS.path / "description-misspelt" / "SKILL.md", SKILLS, "x")
    assert said[0].fix == "did you mean description?"


def commands() -> dict[str, Any]:
    read = {
        path.relative_to(COMMANDS.path).as_posix(): read_command(path, COMMANDS, path.name)
        for path in COMMANDS.path.rglob("*.md")
    }
    return {path: (skill, summarize_findings(said)) for path, (skill, said) in read.items()}


def test_commands_are_named_after_their_file_and_folders():
    assert {path: skill.name for path, (skill, _) in commands().items()} == {
        "fix.md": "fix",
        "bare.md": "bare",
        "frontend/component.md": "frontend:component",
        "frontend/forms/field.md": "frontend:forms:field",
        "renamed.md": "renamed",
        "rule.md": "rule",
        "broken.md": "broken",
    }


def test_a_command_without_a_description_is_described_by_its_first_paragraph():
    assert {path: skill.description for path, (skill, _) in commands().items()} == {
        "fix.md": "Fix an issue",
        "bare.md": "Review the code Look at all that changed.",
        "frontend/component.md": "Make a component",
        "frontend/forms/field.md": "Make a field.",
        "renamed.md": "Called by its file",
        "rule.md": "A rule above, and one below.",
        "broken.md": "Ship it: now",
    }


def test_a_command_has_the_keys_of_a_skill():
    fix, said = commands()["fix.md"]
    assert (fix.kind, fix.model, fix.argument_hint) == ("command", "sonnet", "[issue] [priority]")
    assert fix.allowed_tools == ("Bash(git add:*)", "Bash(git status:*)", "Bash(git commit:*)")
    assert [(level, line) for level, line, _ in said] == [("warning", 3)]
    assert commands()["renamed.md"][1] == [
        ("note", 2, "a command is named after its file: renamed")
    ]


def test_parts_of_a_plugin_are_prefixed_with_its_name():
    place = PartLocation(COMMANDS.path, "user", "acme", WILD)
    component, _ = read_command(place.path / "frontend/component.md", place, "x")
    plain, _ = read_skill(
        SKILLS.path / "plain/SKILL.md", PartLocation(SKILLS.path, "user", "acme"), "x"
    )
    assert component is not None
    assert plain is not None
    assert (component.name, plain.name) == ("acme:frontend:component", "acme:plain")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"---\nname: x\ndescription: \xff\n---\n", "not UTF-8: skipped"),
        (b"---\nname: x\ndescription: y\n---\n" + b"x" * 1_000_000, "longer than 1000000 bytes"),
        (None, "not a file"),
    ],
)
def test_an_unreadable_file_is_skipped(tmp_path: Path, content: bytes | None, problem: str):
    file = tmp_path / "x/SKILL.md"
    file.parent.mkdir()
    file.mkdir() if content is None else file.write_bytes(content)
    skill, said = read_skill(file, PartLocation(tmp_path, "project"), "x/SKILL.md")
    assert (skill, said[0].level, said[0].file) == (None, "error", "x/SKILL.md")
    assert said[0].what.startswith(problem)


KEYS = st.from_regex(r"x[a-z]{1,8}(-[a-z]{1,4})?", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(st.characters(codec="ascii")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


@hypothesis_settings(max_examples=30)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_unknown_fields_are_kept(
    tmp_path_factory: pytest.TempPathFactory, extra: dict[str, object]
):
    file = tmp_path_factory.mktemp("skills") / "SKILL.md"
    head = yaml.safe_dump({"name": "x", "description": "Does it.", **extra}, sort_keys=False)
    file.write_text(f"---\n{head}---\nDo it.\n", encoding="utf-8")
    skill, said = read_skill(file, PartLocation(file.parent, "project"), "SKILL.md")
    assert skill is not None
    assert skill.extra == extra
    assert len([item for item in said if UNKNOWN in item.what]) == len(extra)
