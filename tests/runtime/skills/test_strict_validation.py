"""Our strict check and the reference's: of one mind about every case."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skills_ref import validate  # pyright: ignore[reportMissingTypeStubs]
from tests.row_checks import for_each

from mainspring.runtime.skills.strict_validation import check_strict

WILD = Path(__file__).parents[2] / "fixtures/wild/skills"
GOOD = "name: pdf-tools\ndescription: Works with PDFs.\n"
D = "description: Works with PDFs.\n"
N = "name: pdf-tools\n"


def head(fields: str) -> str:
    return f"---\n{fields}---\n# PDF tools\n"


VALID = {
    "least": head(GOOD),
    "licence": head(GOOD + "license: Apache-2.0\n"),
    "compatibility": head(GOOD + "compatibility: Needs git\n"),
    "compatibility at its longest": head(GOOD + f"compatibility: {'x' * 500}\n"),
    "compatibility empty": head(GOOD + "compatibility:\n"),
    "metadata": head(GOOD + 'metadata:\n  author: me\n  version: "1.0"\n'),
    "metadata nested": head(GOOD + "metadata:\n  a:\n    b: c\n  d:\n    e: f\n"),
    "metadata that is text": head(GOOD + "metadata: some\n"),
    "tools as text": head(GOOD + "allowed-tools: Bash(git:*) Read\n"),
    "tools as lines": head(GOOD + "allowed-tools:\n  - Read\n  - Write\n"),
    "description at its longest": head(N + f"description: {'x' * 1024}\n"),
    "description folded": head(N + "description: >-\n  Works\n  with PDFs.\n"),
    "description literal": head(N + "description: |\n  Works\n  with PDFs.\n"),
    "description in quotes": head(N + 'description: "Use when: asked"\n'),
    "description over lines": head(N + "description: Works\n  with PDFs.\n"),
    "description a number": head(N + "description: 42\n"),
    "description a truth": head(N + "description: yes\n"),
    "description null": head(N + "description: null\n"),
    "description with hyphens": head(N + "description: Works --- with PDFs\n"),
    "a comment": head("# of ours\n" + GOOD),
    "a key in quotes": head('"name": pdf-tools\n' + D),
    "all indented": head("  name: pdf-tools\n  description: Works.\n"),
    "an end of document": head(GOOD + "...\n"),
    "a question": head("? name\n: pdf-tools\n" + D),
    "emoji": head(N + "description: Works 🎉\n"),
    "line ends of Windows": head(GOOD).replace("\n", "\r\n"),
    "no body": f"---\n{GOOD}---",
    "on one line with the fence": f"--- \n{GOOD}--- \n",
    "fences in the body": head(GOOD) + "\n---\n\nmore\n",
    "blanks around the name": head("name: '  pdf-tools '\n" + D),
}
INVALID = {
    "nothing": "",
    "no head": "# PDF tools\n",
    "a blank line first": "\n" + head(GOOD),
    "a byte order mark": "\ufeff" + head(GOOD),
    "no end": f"---\n{GOOD}",
    "empty head": "---\n---\n",
    "only a comment": head("# later\n"),
    "a list": head("- name\n"),
    "a text": head("name\n"),
    "no name": head(D),
    "no description": head(N),
    "name empty": head("name:\n" + D),
    "name blank": head("name: ' '\n" + D),
    "name a list": head("name:\n  - pdf-tools\n" + D),
    "name a mapping": head("name:\n  a: pdf-tools\n" + D),
    "name in capitals": head("name: PDF-Tools\n" + D),
    "name with a blank": head("name: pdf tools\n" + D),
    "name with an underscore": head("name: pdf_tools\n" + D),
    "name with a colon": head("name: acme:pdf-tools\n" + D),
    "name with a hyphen first": head("name: -pdf-tools\n" + D),
    "name with a hyphen last": head("name: pdf-tools-\n" + D),
    "name with two hyphens": head("name: pdf--tools\n" + D),
    "name too long": head(f"name: {'x' * 65}\n" + D),
    "name of another folder": head("name: docx-tools\n" + D),
    "description empty": head(N + "description:\n"),
    "description blank": head(N + "description: '  '\n"),
    "description too long": head(N + f"description: {'x' * 1025}\n"),
    "description a list": head(N + "description:\n  - Works\n"),
    "description an equals sign": head(N + "description: =\n"),
    "compatibility too long": head(GOOD + f"compatibility: {'x' * 501}\n"),
    "compatibility a list": head(GOOD + "compatibility:\n  - git\n"),
    "an unknown key": head(GOOD + "version: 1.0\n"),
    "keys of Claude Code": head(GOOD + "model: opus\ncontext: fork\n"),
    "a number as key": head(GOOD + "1: x\n"),
    "another spelling": head(GOOD + "allowed_tools: Read\n"),
    "a colon in a value": head(N + "description: Use when: asked\n"),
    "a key twice": head(GOOD + N),
    "a key twice below": head(GOOD + "metadata:\n  a: b\n  a: c\n"),
    "a list in brackets": head(GOOD + "allowed-tools: [Read]\n"),
    "a mapping in brackets": head(GOOD + "metadata: {a: b}\n"),
    "an empty list": head(GOOD + "allowed-tools: []\n"),
    "an anchor": head(GOOD + "license: &x MIT\n"),
    "an alias": head(GOOD + "license: *x\n"),
    "a tag": head(GOOD + "license: !!str MIT\n"),
    "a tag of nobody's": head(GOOD + "license: !x MIT\n"),
    "tabs before a value": head("name:\tpdf-tools\n" + D),
    "tabs as indentation": head(GOOD + "metadata:\n\ta: b\n"),
    "a reserved sign": head(N + "description: @all of them\n"),
    "a backtick": head(N + "description: `code`\n"),
    "a glob": head(N + "description: **/*.pdf\n"),
    "quotes not closed": head(N + 'description: "Works\n'),
    "text after quotes": head(N + 'description: "Works" well\n'),
    "a quote in quotes": head(N + "description: 'It's fine'\n"),
    "a bad escape": head(N + 'description: "a\\q"\n'),
    "indented unlike each other": head(GOOD + "metadata:\n  a:\n    b: c\n  d:\n      e: f\n"),
    "two documents": head(GOOD + "...\nmore: x\n"),
    "a merge of nothing": head(GOOD + "<<: x\n"),
    "a list as key": head(GOOD + "? - a\n: b\n"),
    "a control character": head(N + "description: a\x07b\n"),
    "hyphens in the name": head("name: pdf---tools\n" + D),
    "indented unevenly": head(" name: pdf-tools\ndescription: x\n"),
}


def skill(tmp_path: Path, text: str, *, folder: str = "pdf-tools", file: str = "SKILL.md") -> Path:
    place = tmp_path / folder
    place.mkdir()
    (place / file).write_bytes(text.encode())
    return place


def reference_accepts(folder: Path) -> bool:
    try:
        return validate(folder) == []
    except Exception:  # noqa: BLE001 (it stumbles over some; its command then fails, too)
        return False


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_skills_accepted_by_the_reference_are_accepted(tmp_path: Path, text: str):
    folder = skill(tmp_path, text)
    assert reference_accepts(folder)
    assert check_strict(folder) == []


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_skills_refused_by_the_reference_are_refused(tmp_path: Path, text: str):
    folder = skill(tmp_path, text)
    assert not reference_accepts(folder)
    findings = check_strict(folder)
    assert findings != []
    assert {finding.level for finding in findings} == {"error"}


@for_each("folder", sorted(WILD.iterdir()))
def test_both_checkers_agree_on_published_skills(folder: Path):
    assert reference_accepts(folder) == (check_strict(folder) == [])


@pytest.mark.parametrize("name", ["größe", "日本語", "ﬁle", "a" * 64, "0"])
def test_names_may_use_letters_of_all_languages(tmp_path: Path, name: str):
    folder = skill(tmp_path, head(f"name: {name}\n{D}"), folder=name)
    assert reference_accepts(folder)
    assert check_strict(folder) == []


def test_the_file_may_be_named_in_lower_case_and_must_exist(tmp_path: Path):
    small = skill(tmp_path, head(GOOD), file="skill.md")
    other = skill(tmp_path, head(GOOD), folder="other", file="README.md")
    missing = tmp_path / "missing"
    for folder in (small, other, missing):
        assert reference_accepts(folder) == (check_strict(folder) == [])
    assert [str(item) for item in check_strict(other)] == ["other: has no SKILL.md"]
    assert [str(item) for item in check_strict(missing)] == ["missing: is not a folder"]


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path):
    folder = skill(tmp_path, head(GOOD))
    (folder / "SKILL.md").write_bytes(head(GOOD).encode() + b"\xff")
    assert not reference_accepts(folder)
    assert [item.what for item in check_strict(folder)] == ["not UTF-8: skipped"]


def test_every_problem_is_reported_with_its_line(tmp_path: Path):
    fields = "name: PDF_tools\ndescription: ''\nversion: 1.0\nauthor: me\n"
    assert [str(item) for item in check_strict(skill(tmp_path, head(fields)))] == [
        "pdf-tools/SKILL.md:5: `author` is not a field of Agent Skills (put it in `metadata`)",
        "pdf-tools/SKILL.md:4: `version` is not a field of Agent Skills (put it in `metadata`)",
        "pdf-tools/SKILL.md:2: the name PDF_tools must be lowercase",
        "pdf-tools/SKILL.md:2: the name PDF_tools may have only letters, digits and hyphens",
        "pdf-tools/SKILL.md:2: the name PDF_tools must match its folder, pdf-tools",
        "pdf-tools/SKILL.md:3: `description` must be text",
    ]


LINES = st.lists(
    st.sampled_from(
        [
            *("name: pdf-tools", "description: Works.", "license: MIT", "metadata:", "  a: b"),
            *("    c: d", "- x", "  - y", "allowed-tools: Read", "version: 1", "x: [", "k: v: w"),
            *("compatibility: >", "# c", "", "'q': \"r\"", "e: &a f", "g: !t h"),
        ]
    ),
    max_size=8,
)


@given(LINES)
def test_both_checkers_agree_on_any_mixture_of_fields(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
):
    fields = "".join(f"{line}\n" for line in [*GOOD.splitlines(), *lines])
    folder = skill(tmp_path_factory.mktemp("skills"), head(fields))
    assert reference_accepts(folder) == (check_strict(folder) == [])
