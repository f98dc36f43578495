"""Where instruction files are looked for: scopes, rules in folders, persona, steering files."""

from pathlib import Path, PurePosixPath

import pytest

from mainspring.harness.context.instruction_files import (
    InstructionFiles,
    InstructionIssue,
    InstructionRoots,
)
from mainspring.harness.context.instructions import Instructions, load, rules_for


def write(root: Path, *places: str, text: str | None = None) -> None:
    for place in places:
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {place}" if text is None else text)


def read(root: Path, *, cwd: str = "project", agent: str | None = "project") -> Instructions:
    (root / "project").mkdir(exist_ok=True)
    at = PurePosixPath(root)
    places = InstructionRoots(
        project=at / "project",
        cwd=at / cwd,
        agent=None if agent is None else at / agent,
        home=at / "home",
        managed=(at / "foreign", at / "managed"),
    )
    return load(InstructionFiles(), places)


def sources(found: Instructions) -> list[str]:
    return [section.source for section in found.sections]


def notes(found: Instructions) -> list[InstructionIssue]:
    return [oddity for oddity in found.issues if oddity.is_note]


def test_every_scope_has_its_own_locations_and_the_most_specific_comes_last(tmp_path: Path):
    own = [
        "foreign/CLAUDE.md",
        "managed/AGENTS.md",
        "managed/CLAUDE.md",
        "managed/rules/law.md",
        "home/.mainspring/AGENTS.md",
        "home/.claude/CLAUDE.md",
        "home/.kiro/steering/mine.md",
        "home/.mainspring/rules/a.md",
        "home/.claude/rules/b.md",
        "project/SOUL.md",
        "project/IDENTITY.md",
        "project/USER.md",
        "project/TOOLS.md",
        "project/AGENTS.md",
        "project/CLAUDE.md",
        "project/.claude/CLAUDE.md",
        "project/.kiro/steering/tech.md",
        "project/rules/own.md",
        "project/.mainspring/rules/c.md",
        "project/.claude/rules/d.md",
        "project/CLAUDE.local.md",
        "project/app/AGENTS.md",
        "project/app/.claude/rules/e.md",
    ]
    write(tmp_path, *reversed(own))
    found = read(tmp_path, cwd="project/app")
    assert [section.text.removeprefix("this is ") for section in found.sections] == own
    assert [s.scope for s in found.sections] == [*["managed"] * 4, *["user"] * 5, *["project"] * 14]
    assert found.issues == ()


def test_rules_are_found_in_subfolders_of_rules(tmp_path: Path):
    write(
        tmp_path,
        "project/.claude/rules/web/react.md",
        "project/.claude/rules/z.md",
        "project/.claude/rules/web/deep/er/x.md",
        "project/.claude/rules/.git/config.md",
        "project/.claude/rules/web/notes.txt",
    )
    assert sources(read(tmp_path)) == [
        ".claude/rules/z.md",
        ".claude/rules/web/react.md",
        ".claude/rules/web/deep/er/x.md",
    ]


def test_symlinked_rule_folders_are_read_once_and_cannot_leave_the_project(tmp_path: Path):
    write(tmp_path, "project/.claude/rules/a.md", "project/shared/b.md", "outside/secret.md")
    rules = tmp_path / "project/.claude/rules"
    (rules / "again").symlink_to(rules)
    (rules / "shared").symlink_to(tmp_path / "project/shared")
    (rules / "out").symlink_to(tmp_path / "outside")
    found = read(tmp_path)
    assert sources(found) == [".claude/rules/a.md", "shared/b.md"]
    assert found.warnings == (".claude/rules/out: leads out of the project: not read",)


def test_at_most_200_rule_files_are_read(tmp_path: Path):
    write(tmp_path, *(f"project/rules/{number:03}.md" for number in range(210)))
    found = read(tmp_path)
    assert len(found.sections) == 200
    assert found.warnings == ("rules: has too many files: only 200 are read",)


def test_a_rules_folder_is_read_only_in_the_agents_folder(tmp_path: Path):
    write(tmp_path, "project/rules/a.md", "project/app/rules/b.md")
    assert sources(read(tmp_path, cwd="project/app")) == ["rules/a.md"]
    assert sources(read(tmp_path, cwd="project/app", agent="project/app")) == ["app/rules/b.md"]
    assert sources(read(tmp_path, agent=None)) == []


def test_path_patterns_of_user_rules_are_relative_to_the_project(tmp_path: Path):
    write(tmp_path, "home/.claude/rules/py.md", text="---\npaths: src/**/*.py\n---\ntyped")
    (rule,) = rules_for(read(tmp_path), ["src/a/b.py"])
    assert (rule.source, rule.text, rule.scope) == ("~/.claude/rules/py.md", "typed", "user")


def test_imports_of_a_scoped_rule_apply_to_the_same_files(tmp_path: Path):
    for name, glob in (("py", "*.py"), ("pyi", "*.pyi"), ("go", "*.go")):
        head = f"---\npaths: ['{glob}']\n---\n"
        extra = (
            " with @/etc/hosts"
            if name == "go"
            else " with @../../docs/style.md and @../../docs/all.md"
        )
        write(tmp_path, f"project/.claude/rules/{name}.md", text=f"{head}about {name}{extra}")
    write(tmp_path, "project/docs/style.md", text="style, see @/etc/passwd")
    write(tmp_path, "project/docs/all.md")
    write(tmp_path, "project/CLAUDE.md", text="see @docs/all.md")
    found = read(tmp_path)
    assert sources(found) == ["CLAUDE.md", "docs/all.md"]
    assert [rule.source for rule in rules_for(found, ["a.py"])] == [
        ".claude/rules/py.md",
        "docs/style.md",
    ]
    assert [rule.source for rule in rules_for(found, ["a.pyi"])] == [
        ".claude/rules/pyi.md",
        "docs/style.md",
    ]
    assert [rule.source for rule in rules_for(found, ["a.go"])] == [".claude/rules/go.md"]
    assert found.warnings == (
        ".claude/rules/go.md:4: @/etc/hosts leads out of the project: not read",
        "docs/style.md:1: @/etc/passwd leads out of the project: not read",
    )


def test_a_persona_is_read_only_from_the_agents_folder(tmp_path: Path):
    write(tmp_path, "project/SOUL.md", "project/app/SOUL.md", "home/SOUL.md")
    assert sources(read(tmp_path, cwd="project/app")) == ["SOUL.md"]
    assert sources(read(tmp_path, agent=None)) == []


def test_a_persona_has_no_imports_and_its_frontmatter_is_removed(tmp_path: Path):
    write(tmp_path, "project/notes.md")
    write(tmp_path, "project/IDENTITY.md", text="---\nsummary: x\n---\n\nAda, see @notes.md")
    assert [section.text for section in read(tmp_path).sections] == ["Ada, see @notes.md"]


def test_other_persona_files_are_reported_as_not_read(tmp_path: Path):
    beside = ("TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md", "MEMORY.md")
    write(tmp_path, *(f"project/{name}" for name in beside))
    assert read(tmp_path) == Instructions()
    write(tmp_path, "project/SOUL.md")
    found = read(tmp_path)
    assert sources(found) == ["SOUL.md", "TOOLS.md"]
    assert [note.file for note in notes(found)] == ["HEARTBEAT.md", "BOOTSTRAP.md", "MEMORY.md"]
    assert found.warnings == ()


def steer(root: Path, name: str, head: str, body: str) -> None:
    write(root, f"project/.kiro/steering/{name}.md", text=f"---\n{head}\n---\n{body}")


def test_steering_files_always_apply_unless_they_declare_otherwise(tmp_path: Path):
    write(tmp_path, "project/.kiro/steering/product.md", text="for whom")
    steer(tmp_path, "structure", "inclusion: always", "where things are")
    steer(tmp_path, "auto", "inclusion: auto\nname: api\ndescription: REST", "how to REST")
    steer(tmp_path, "manual", "inclusion: manual", "when asked")
    write(tmp_path, "project/.kiro/steering/deeper/x.md")
    found = read(tmp_path)
    assert [s.text for s in found.sections] == ["how to REST", "for whom", "where things are"]
    assert [(note.file, note.line) for note in notes(found)] == [
        (".kiro/steering/auto.md", 2),
        (".kiro/steering/manual.md", 2),
    ]
    assert found.warnings == ()


def test_a_manual_steering_file_can_be_imported(tmp_path: Path):
    steer(tmp_path, "manual", "inclusion: manual", "when asked")
    write(tmp_path, "project/CLAUDE.md", text="also @.kiro/steering/manual.md")
    assert sources(read(tmp_path)) == ["CLAUDE.md", ".kiro/steering/manual.md"]


@pytest.mark.parametrize(
    ("pattern", "path", "holds"),
    [
        ("'components/**/*.tsx'", "components/a/b.tsx", True),
        ("'components/**/*.tsx'", "b.tsx", False),
        ("'*.tsx'", "components/a/b.tsx", True),
        ("['**/*.ts', 'package.json']", "web/package.json", True),
        ("['**/*.ts', 'package.json']", "web/x.json", False),
        ("'**/*.{ts,js}'", "x.js", True),
    ],
)
def test_a_steering_file_with_a_pattern_applies_to_matching_files(
    tmp_path: Path, pattern: str, path: str, holds: bool
):
    steer(tmp_path, "web", f"inclusion: fileMatch\nfileMatchPattern: {pattern}", "be careful")
    found = read(tmp_path)
    assert (found.sections, found.issues) == ((), ())
    assert [rule.text for rule in rules_for(found, [path])] == ["be careful"] * holds


@pytest.mark.parametrize(
    "head", ["inclusion: fileMatch", "inclusion: sometimes", "inclusion: [", "inclusion: [a]"]
)
def test_a_steering_file_with_invalid_frontmatter_is_read_with_a_warning(tmp_path: Path, head: str):
    steer(tmp_path, "odd", head, "the text")
    found = read(tmp_path)
    assert [section.text for section in found.sections] == ["the text"]
    places = {(oddity.file, oddity.line, oddity.is_note) for oddity in found.issues}
    assert places == {(".kiro/steering/odd.md", 2, False)}


def test_a_steering_file_can_reference_files_of_the_project(tmp_path: Path):
    write(tmp_path, "project/api/openapi.yaml", "project/docs/b.md", "outside.md")
    body = (
        "see #[[file:api/openapi.yaml]] and @docs/c.md,\n#[[file:../../docs/b.md]]\n"
        "`#[[file:code.md]]`\n#[[file:gone]]\n#[[file:../../../outside.md]]"
    )
    steer(tmp_path, "api", "inclusion: always", body)
    found = read(tmp_path)
    assert sources(found) == [".kiro/steering/api.md", "api/openapi.yaml", "docs/b.md"]
    assert [(issue.line, issue.what) for issue in found.issues] == [
        (7, "#[[file:gone]] is not a file that can be imported"),
        (8, "#[[file:../../../outside.md]] leads out of the project: not read"),
    ]


def test_references_from_user_files_cannot_leave_the_project_through_links(tmp_path: Path):
    write(tmp_path, "home/.kiro/steering/all.md", text="see #[[file:docs/api.md]]")
    write(tmp_path, "home/.ssh/id", text="secret")
    (tmp_path / "project/docs").mkdir(parents=True)
    (tmp_path / "project/docs/api.md").symlink_to(tmp_path / "home/.ssh/id")
    found = read(tmp_path)
    assert sources(found) == ["~/.kiro/steering/all.md"]
    assert len(found.warnings) == 1


def test_an_import_issue_is_reported_with_its_line(tmp_path: Path):
    text = "<!-- a\ncomment -->\n```\n@docs/x.md\n```\n\nread @docs/x.md.\n"
    write(tmp_path, "project/CLAUDE.md", text=text)
    (oddity,) = read(tmp_path).issues
    assert (oddity.file, oddity.line) == ("CLAUDE.md", 7)
    assert str(oddity) == "CLAUDE.md:7: @docs/x.md is not a file that can be imported"
    assert oddity.fix is not None


def test_hidden_files_are_not_read_even_when_imported(tmp_path: Path):
    write(tmp_path, "project/.env", "project/docs/a.md")
    write(tmp_path, "project/CLAUDE.md", text="x @.env @docs/a.md @docs/link")
    (tmp_path / "project/docs/link").symlink_to(tmp_path / "project/.env")
    at = PurePosixPath(tmp_path / "project")
    disk = InstructionFiles(is_hidden=lambda path: path.name == ".env")
    assert sources(load(disk, InstructionRoots(project=at, cwd=at))) == ["CLAUDE.md", "docs/a.md"]


class SwappingFiles(InstructionFiles):
    """A program that puts a link into the place of a file, once it was looked at."""

    def read(self, path: PurePosixPath, max_bytes: int) -> bytes | None:
        if path.name == "AGENTS.md":
            folder = Path(path.parent)
            folder.rename(folder.with_name("was"))
            folder.symlink_to(folder.parent.parent / "outside")
        return super().read(path, max_bytes)


def test_a_folder_replaced_by_a_link_during_loading_is_not_followed(tmp_path: Path):
    write(tmp_path, "project/app/AGENTS.md", "outside/AGENTS.md")
    at = PurePosixPath(tmp_path / "project/app")
    assert load(SwappingFiles(), InstructionRoots(project=at, cwd=at)).sections == ()
