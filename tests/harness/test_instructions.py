"""Instruction files on a real disk: which are read, in what order, and what is refused."""

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import pytest

from mainspring.harness.context.instruction_files import InstructionFiles, InstructionRoots
from mainspring.harness.context.instruction_parsing import InstructionLimits
from mainspring.harness.context.instructions import (
    Instructions,
    Section,
    load,
    load_nested,
    render,
    rules_for,
)

Write: TypeAlias = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(place: str, text: str) -> Path:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    (tmp_path / "project").mkdir()
    return put


@pytest.fixture
def places(tmp_path: Path) -> InstructionRoots:
    root = PurePosixPath(tmp_path)
    cwd, managed = root / "project/app/web", (root / "etc",)
    return InstructionRoots(project=root / "project", cwd=cwd, home=root / "home", managed=managed)


def read(places: InstructionRoots, limits: InstructionLimits | None = None) -> Instructions:
    return load(InstructionFiles(), places, limits)


def sources(instructions: Instructions) -> list[str]:
    return [section.source for section in instructions.sections]


def texts(instructions: Instructions) -> list[str]:
    return [section.text for section in instructions.sections]


def test_a_project_without_instructions_has_none(write: Write, places: InstructionRoots):
    assert read(places) == Instructions()
    assert render(read(places)) == ""


def test_instruction_files_are_ordered_from_general_to_specific(
    write: Write, places: InstructionRoots, tmp_path: Path
):
    for place in (
        "project/app/web/CLAUDE.md",
        "project/app/web/AGENTS.md",
        "project/app/.claude/CLAUDE.md",
        "project/app/other/CLAUDE.md",
        "project/CLAUDE.local.md",
        "project/CLAUDE.md",
        "project/AGENTS.md",
        "home/.claude/CLAUDE.md",
        "etc/CLAUDE.md",
    ):
        write(place, f"this is {place}\n")
    found = read(places)
    assert sources(found) == [
        (tmp_path / "etc/CLAUDE.md").as_posix(),
        "~/.claude/CLAUDE.md",
        "AGENTS.md",
        "CLAUDE.md",
        "CLAUDE.local.md",
        "app/.claude/CLAUDE.md",
        "app/web/AGENTS.md",
        "app/web/CLAUDE.md",
    ]
    assert [section.scope for section in found.sections[:3]] == ["managed", "user", "project"]
    assert found.warnings == ()


def test_a_claude_file_that_only_imports_agents_adds_no_section(
    write: Write, places: InstructionRoots
):
    write("project/AGENTS.md", "the rules")
    write("project/CLAUDE.md", "<!-- see there -->\n@AGENTS.md\n")
    assert read(places).sections == (Section("AGENTS.md", "the rules"),)


def test_a_claude_file_symlinked_to_agents_is_read_once(write: Write, places: InstructionRoots):
    agents = write("project/AGENTS.md", "the rules are in @more.md")
    write("project/more.md", "more")
    (agents.parent / "CLAUDE.md").symlink_to("AGENTS.md")
    assert sources(read(places)) == ["AGENTS.md", "more.md"]


def test_imports_in_agents_files_work_only_if_a_claude_file_imports_it(
    write: Write, places: InstructionRoots
):
    write("project/AGENTS.md", "see @more.md")
    write("project/more.md", "more")
    assert sources(read(places)) == ["AGENTS.md"]
    write("project/CLAUDE.md", "@AGENTS.md\nand be kind")
    assert sources(read(places)) == ["AGENTS.md", "CLAUDE.md", "more.md"]


def test_an_import_follows_its_importer_and_is_relative_to_it(
    write: Write, places: InstructionRoots
):
    write("project/CLAUDE.md", "read @docs/style.md, then @./docs/test.md#how. Ask @alice.")
    write("project/docs/style.md", "style, with @deep/more.md")
    write("project/docs/deep/more.md", "more")
    write("project/docs/test.md", "test")
    write("project/app/CLAUDE.md", "app, with @../docs/style.md")
    found = read(places)
    assert sources(found) == [
        "CLAUDE.md",
        "docs/style.md",
        "docs/deep/more.md",
        "docs/test.md",
        "app/CLAUDE.md",
    ]
    assert found.warnings == ()


def test_importing_a_more_specific_file_does_not_change_its_order(
    write: Write, places: InstructionRoots
):
    write("project/CLAUDE.md", "root @app/CLAUDE.md")
    write("project/app/CLAUDE.md", "app @../CLAUDE.md")
    assert sources(read(places)) == ["CLAUDE.md", "app/CLAUDE.md"]


def test_circular_imports_are_read_once(write: Write, places: InstructionRoots):
    write("project/CLAUDE.md", "start @a.md @CLAUDE.md")
    write("project/a.md", "a @b.md")
    write("project/b.md", "b @a.md @CLAUDE.md")
    found = read(places)
    assert (sources(found), found.warnings) == (["CLAUDE.md", "a.md", "b.md"], ())


def test_imports_are_followed_four_levels_deep(write: Write, places: InstructionRoots):
    write("project/CLAUDE.md", "0 @1.md")
    for depth in range(1, 6):
        write(f"project/{depth}.md", f"{depth} @{depth + 1}.md")
    found = read(places)
    assert sources(found) == ["CLAUDE.md", "1.md", "2.md", "3.md", "4.md"]
    assert found.warnings == (
        "4.md:1: @5.md not read: imports are limited to 4 levels and 200 files",
    )


@pytest.mark.parametrize(
    "text",
    [
        "`@x.md`",
        "``a ` @x.md ``",
        "```\n\n@x.md\n```",
        "~~~~ sh\n@x.md\n~~~\n@x.md\n~~~~",
        "- item\n\n  ```sh\n\n  @x.md\n  ```\n",
        "> ```\n> @x.md\n> ```",
        "```\n@x.md",
        "me@x.md",
        "<!-- @x.md -->",
        "`a`@x.md",
    ],
)
def test_only_at_mentions_in_prose_are_imported(write: Write, places: InstructionRoots, text: str):
    write("project/CLAUDE.md", f"start\n{text}")
    write("project/x.md", "x")
    found = read(places)
    assert (sources(found), found.warnings) == (["CLAUDE.md"], ())


@pytest.mark.parametrize("text", ["`a` @x.md `b`", "```\na\n```\n@x.md", "` @x.md", "~~ @x.md"])
def test_mentions_next_to_code_are_imported(write: Write, places: InstructionRoots, text: str):
    write("project/CLAUDE.md", text)
    write("project/x.md", "x")
    assert sources(read(places)) == ["CLAUDE.md", "x.md"]


def test_html_comments_are_removed_except_in_code(write: Write, places: InstructionRoots):
    write(
        "project/CLAUDE.md",
        "a <!-- x --> b\n<!-- x\n\ny -->\nc\n`<!-- d -->`\n```html\n<!-- e -->\n```\n<!-- open",
    )
    assert texts(read(places)) == ["a  b\nc\n`<!-- d -->`\n```html\n<!-- e -->\n```\n<!-- open"]


def test_failed_imports_are_warnings(write: Write, places: InstructionRoots):
    write("project/CLAUDE.md", "x @missing.md @docs @docs/ @logo.png")
    write("project/docs/a.md", "a")
    write("project/logo.png", "\0PNG")
    found = read(places)
    assert sources(found) == ["CLAUDE.md"]
    assert found.warnings == (
        "CLAUDE.md:1: @missing.md is not a file that can be imported",
        "CLAUDE.md:1: @docs/ is not a file that can be imported",
        "CLAUDE.md:1: @logo.png is not text: not read",
    )


def test_invalid_utf_8_is_reported_with_its_line(write: Write, places: InstructionRoots):
    file = write("project/CLAUDE.md", "")
    file.write_bytes("\nGr\u00fc\u00dfe".encode("latin-1"))
    assert read(places).warnings == (
        "CLAUDE.md:2: is not UTF-8: characters that cannot be read are replaced",
    )
    file.write_bytes("an honest \ufffd".encode())
    assert read(places).warnings == ()


def test_a_project_cannot_read_files_outside_itself(
    write: Write, places: InstructionRoots, tmp_path: Path
):
    secret = write("home/.ssh/id", "secret")
    (tmp_path / "project/CLAUDE.md").symlink_to(secret)
    (tmp_path / "project/link").symlink_to(secret.parent)
    (tmp_path / "project/.claude").symlink_to(tmp_path / "home")
    write("home/rules/all.md", "secret")
    write("project/CLAUDE.local.md", f"x @~/.ssh/id @../home/.ssh/id @{secret.as_posix()} @link/id")
    found = read(places)
    assert sources(found) == ["CLAUDE.local.md"]
    assert len(found.warnings) == 7
    assert all("leads out of the project: not read" in warning for warning in found.warnings)


def test_files_of_the_user_may_import_from_anywhere(
    write: Write, places: InstructionRoots, tmp_path: Path
):
    write("home/.claude/CLAUDE.md", "mine @~/notes.md")
    write("home/notes.md", "notes")
    write("project/CLAUDE.md", "ours @~/.shared/team.md")
    write("home/.shared/team.md", "team")
    shared = PurePosixPath(tmp_path / "home/.shared")
    allowed = InstructionRoots(
        project=places.project, cwd=places.cwd, home=places.home, shared=(shared,)
    )
    found = read(allowed)
    assert sources(found) == ["~/.claude/CLAUDE.md", "~/notes.md", "CLAUDE.md", "~/.shared/team.md"]
    assert found.warnings == ()


def test_a_symlinked_project_reads_the_same_files(
    write: Write, places: InstructionRoots, tmp_path: Path
):
    write("project/app/web/AGENTS.md", "web")
    (tmp_path / "linked").symlink_to(tmp_path / "project")
    linked = PurePosixPath(tmp_path / "linked")
    assert read(InstructionRoots(project=linked, cwd=linked / "app/web")) == read(places)


def test_circular_links_and_fifos_are_ignored(
    write: Write, places: InstructionRoots, tmp_path: Path
):
    (tmp_path / "project/CLAUDE.md").symlink_to("CLAUDE.md")
    os.mkfifo(tmp_path / "project/AGENTS.md")
    assert read(places).sections == ()


class UnreadableFiles(InstructionFiles):
    def read(self, path: PurePosixPath, max_bytes: int) -> bytes | None:
        raise PermissionError(13, "Permission denied")

    def names(self, folder: PurePosixPath) -> tuple[str, ...]:
        raise PermissionError(13, "Permission denied")


def test_unreadable_files_are_warnings(write: Write, places: InstructionRoots):
    found = load(UnreadableFiles(), places)
    assert found.sections == ()
    assert "CLAUDE.md: cannot be read: Permission denied" in found.warnings
    assert ".claude/rules: cannot be read: Permission denied" in found.warnings


def test_a_working_folder_outside_the_project_reads_only_the_root(
    write: Write, places: InstructionRoots
):
    write("project/AGENTS.md", "root")
    outside = InstructionRoots(project=places.project, cwd=places.project.parent / "elsewhere")
    found = read(outside)
    assert sources(found) == ["AGENTS.md"]
    assert len(found.warnings) == 1


def test_a_rule_without_paths_always_applies(write: Write, places: InstructionRoots):
    write("project/.claude/rules/b.md", "---\ndescription: x\n---\nrule b")
    write("project/.claude/rules/a.md", "rule a")
    write("project/.claude/rules/notes.txt", "no rule")
    write("home/.claude/rules/mine.md", "rule of mine")
    found = read(places)
    assert texts(found) == ["rule of mine", "rule a", "rule b"]
    assert found.scoped == ()


@pytest.mark.parametrize(
    ("paths", "path", "holds"),
    [
        ('["src/**/*.ts"]', "src/a.ts", True),
        ('["src/**/*.ts"]', "src/a/b/c.ts", True),
        ('["src/**/*.ts"]', "lib/a.ts", False),
        ('["src/**/*.ts"]', "src/a.tsx", False),
        ('["*.md"]', "a.md", True),
        ('["*.md"]', "docs/a.md", False),
        ('["**/*.md"]', "a.md", True),
        ('["src/**"]', "src/a/b", True),
        ('["src/"]', "src/a/b", True),
        ('["./src/*"]', "src/a", True),
        ('["a/**/b/**/c"]', "a/x/b/y/b/c", True),
        ('["a/**/b/**/c"]', "a/x/b/y/b/d", False),
        ('["**/*.{ts,tsx}"]', "web/a.tsx", True),
        ('["{src,lib}/{a,b}.ts"]', "lib/b.ts", True),
        ('["{src,lib}/{a,b}.ts"]', "lib/c.ts", False),
        ("src/*.{js,ts}, lib/*", "lib/x", True),
        ("src/*.{js,ts}, lib/*", "src/x.ts", True),
        ('["[ab]?.py"]', "bx.py", True),
        ('["no", "yes"]', "yes", True),
    ],
)
def test_a_rule_with_paths_applies_to_matching_files(
    write: Write, places: InstructionRoots, paths: str, path: str, holds: bool
):
    write("project/.claude/rules/scoped.md", f"---\npaths: {paths}\n---\n\nbe careful\n")
    found = read(places)
    assert (found.sections, found.warnings) == ((), ())
    assert [rule.text for rule in rules_for(found, ["unrelated", path])] == ["be careful"] * holds


def test_rules_of_a_folder_apply_to_files_in_that_folder(write: Write, places: InstructionRoots):
    write("project/app/.claude/rules/ts.md", "---\npaths: ['*.ts']\n---\ncareful")
    found = read(places)
    assert [rule.source for rule in rules_for(found, ["app/a.ts"])] == ["app/.claude/rules/ts.md"]
    assert rules_for(found, ["a.ts", "app/web/a.ts", "application/a.ts"]) == ()


@pytest.mark.parametrize(
    "head", ["paths: 3", "paths: [1]", "- a", "a: [", "paths: ['" + "{a,b}" * 9 + "']"]
)
def test_a_rule_with_broken_frontmatter_always_applies_with_a_warning(
    write: Write, places: InstructionRoots, head: str
):
    write("project/.claude/rules/r.md", f"---\n{head}\n---\nthe rule")
    found = read(places)
    assert texts(found) == ["the rule"]
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith(".claude/rules/r.md:2: ")


def test_an_unquoted_glob_in_frontmatter_is_accepted_with_a_warning(
    write: Write, places: InstructionRoots
):
    write("project/.claude/rules/r.md", "---\npaths: **/*.ts\n---\nthe rule")
    found = read(places)
    assert [rule.text for rule in rules_for(found, ["a/b.ts"])] == ["the rule"]
    assert (found.sections, len(found.warnings)) == ((), 1)


def test_files_in_subfolders_are_loaded_when_needed(
    write: Write, places: InstructionRoots, tmp_path: Path
):
    for place in ("AGENTS.md", "app/web/AGENTS.md", "app/web/a/AGENTS.md", "app/web/a/b/CLAUDE.md"):
        write(f"project/{place}", place)
    nested = load_nested(InstructionFiles(), places, PurePosixPath("a/b/file.py"))
    assert sources(nested) == ["app/web/a/AGENTS.md", "app/web/a/b/CLAUDE.md"]
    for elsewhere in ("file.py", "../../file.py", (tmp_path / "x").as_posix()):
        assert load_nested(InstructionFiles(), places, PurePosixPath(elsewhere)) == Instructions()


def test_over_the_limit_the_most_specific_project_file_and_wider_scopes_stay(
    write: Write, places: InstructionRoots
):
    write("etc/CLAUDE.md", "m" * 30)
    write("project/AGENTS.md", "r" * 60)
    write("project/app/AGENTS.md", "a" * 60)
    found = read(places, InstructionLimits(max_chars=100))
    assert (texts(found)[0], texts(found)[2]) == ("m" * 30, "a" * 60)
    assert texts(found)[1].startswith("r" * 10 + "\n[AGENTS.md is too long")
