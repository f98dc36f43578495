"""Instruction files of other tools, names that are no imports, and files that are too long."""

from pathlib import Path, PurePosixPath

import pytest

from mainspring.harness.context.instruction_files import InstructionFiles, InstructionRoots
from mainspring.harness.context.instruction_parsing import InstructionLimits
from mainspring.harness.context.instructions import load, rules_for


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, place: str, text: str) -> None:
        file = self.root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def load(self, limits: InstructionLimits | None = None):
        folder = PurePosixPath(self.root)
        return load(InstructionFiles(), InstructionRoots(project=folder, cwd=folder), limits)

    def texts(self, limits: InstructionLimits | None = None) -> list[str]:
        return [section.text for section in self.load(limits).sections]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_long_file_is_cut_before_a_heading(project: Project):
    parts = [f"## Part {number}\n" + "word " * 20 for number in range(9)]
    project.write("AGENTS.md", "\n".join(parts))
    [text] = project.texts(InstructionLimits(max_chars=600))
    kept, _, notice = text.rpartition("\n")
    assert kept == "\n".join(parts[:5]).rstrip()
    assert notice.startswith("[AGENTS.md is too long")


def test_instruction_limits_scale_with_the_context_window():
    assert InstructionLimits.of_window(200_000) == InstructionLimits()
    assert InstructionLimits.of_window(32_000).max_chars == 16_800


def test_cursor_rules_apply_always_for_matching_files_or_are_offered(project: Project):
    rules = ".cursor/rules"
    project.write(f"{rules}/style.mdc", "---\nalwaysApply: true\nglobs:\n---\nBe brief.")
    project.write(
        f"{rules}/web/css.mdc", "---\nglobs: *.css,src/**/*.scss\nalwaysApply: false\n---\nUse rem."
    )
    project.write(
        f"{rules}/db.mdc", "---\ndescription: migrations of the database\n---\nAlways reversible."
    )
    project.write(f"{rules}/manual.mdc", "---\nalwaysApply: false\n---\nOnly by name.")
    project.write(f"{rules}/README.md", "not a rule")
    found = project.load()
    assert [section.text for section in found.sections] == [
        "Read .cursor/rules/db.mdc before you work on this: migrations of the database",
        "Be brief.",
    ]
    assert [rule.text for rule in rules_for(found, ["a/b.css"])] == ["Use rem."]
    assert [rule.text for rule in rules_for(found, ["a/b.py"])] == []
    assert found.warnings == ()


def test_get_shit_done_project_files_are_loaded(project: Project):
    project.write(".planning/STATE.md", "Phase 3.")
    project.write(".planning/PROJECT.md", "A shop.")
    project.write(".planning/SUMMARY.md", "not read")
    assert project.texts() == ["A shop.", "Phase 3."]


def test_npm_package_names_are_not_imports(project: Project):
    names = "@types/node @babel/core@7.2.1 @vue/compiler-sfc @scope/x.y @scope/x/types @scope/*"
    lost = "@docs/missing.md, @docs/more/missing.md and @./lost/file"
    project.write("CLAUDE.md", f"We use {names} and (no @scope/* deps). See {lost}.")
    assert project.load().warnings == (
        "CLAUDE.md:1: @docs/missing.md is not a file that can be imported",
        "CLAUDE.md:1: @docs/more/missing.md is not a file that can be imported",
        "CLAUDE.md:1: @./lost/file is not a file that can be imported",
    )


def test_a_long_file_is_cut_at_a_line_with_a_notice(project: Project):
    project.write("AGENTS.md", "line\n" * 100)
    found = project.load(InstructionLimits(max_chars=23))
    assert [section.text for section in found.sections] == [
        "line\nline\nline\nline\n[AGENTS.md is too long and was cut here; the rest is in the file]"
    ]
    assert found.warnings == (
        "AGENTS.md: is too long: its first 19 of 499 characters are used; all instruction files"
        " together may have 23",
    )
