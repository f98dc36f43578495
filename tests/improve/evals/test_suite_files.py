from pathlib import Path

import pytest

from mainspring.core.errors import InvalidInput
from mainspring.improve.evals.suites.suite_files import SuiteProblems, find_suites, read_suite

GOOD = """\
trials: 2
graders: [{type: bounds, max_turns: 3}]
cases:
  - id: greets
    input: Say hello
    graders: [{type: contains, text: hello}]
"""


def problems(folder: Path, text: str, name: str = "basics.yaml") -> list[str]:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(SuiteProblems) as refused:
        read_suite(folder / name)
    return [str(finding) for finding in refused.value.findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cases: [", "basics.yaml:1: not YAML"),
        ("", "basics.yaml:1: the suite is empty"),
        ("trials: 1\n", "basics.yaml:1: the suite has no cases"),
        (GOOD.replace("trials: 2", "trials: 0"), "basics.yaml:1: Expected `int` >= 1"),
        (GOOD.replace("max_turns: 3", "max_turn: 3"), "basics.yaml:2: Object contains unknown"),
        (
            GOOD.replace("    input", "    inputs"),
            "basics.yaml:4: Object contains unknown field `inputs`",
        ),
        (GOOD.replace("text: hello", "text: 4"), "basics.yaml:6: Expected `str | array`"),
        (
            GOOD.replace("contains, text", "containz, text"),
            "basics.yaml:6: Invalid value 'containz'",
        ),
        (GOOD.replace("id: greets", "id: ../x"), "basics.yaml:4: Expected `str` matching regex"),
        (
            GOOD.replace("{type: contains, text: hello}", "{type: regex, pattern: '('}"),
            "basics.yaml:4: case greets: '(' is not an RE2 pattern",
        ),
        (
            GOOD + "    workspace: gone\n",
            "basics.yaml:4: case greets: gone: there is no such folder",
        ),
        (
            GOOD + "    files: {../out: x}\n",
            "basics.yaml:4: case greets: '../out' is not a path inside the workspace",
        ),
        (
            GOOD + "  - {id: greets, input: again, expect: answer}\n",
            "basics.yaml:7: case greets is at basics.yaml:4 already",
        ),
        (
            "cases: [{id: a, input: hi}]",
            "basics.yaml:1: case a: it has no `graders`",
        ),
    ],
)
def test_a_mistake_in_a_suite_is_reported_with_file_and_line(
    tmp_path: Path, text: str, expected: str
):
    assert problems(tmp_path, text)[0].startswith(expected)


def test_every_invalid_case_is_reported_at_once(tmp_path: Path):
    text = "cases:\n  - {id: a}\n  - {id: b, input: hi, expect: answer}\n  - {id: c, input: 7}\n"
    assert [line.split(":")[1] for line in problems(tmp_path, text)] == ["2", "4"]


def test_a_json_lines_file_is_a_suite(tmp_path: Path):
    good = '{"id":"a","input":"hi","expect":"answer"}\n\n'
    (tmp_path / "many.jsonl").write_text(good, encoding="utf-8")
    assert [case.id for case in read_suite(tmp_path / "many.jsonl").suite.cases] == ["a"]
    assert problems(tmp_path, good + '{"id":"b"}', "many.jsonl")[0].startswith("many.jsonl:3: ")


def test_a_suite_includes_cases_from_other_files(tmp_path: Path):
    (tmp_path / "more.jsonl").write_text('{"id":"b","input":"hi","expect":"ask"}', encoding="utf-8")
    (tmp_path / "basics.yaml").write_text(GOOD + "case_files: [more.jsonl]\n", encoding="utf-8")
    assert [case.id for case in read_suite(tmp_path / "basics.yaml").suite.cases] == ["greets", "b"]


def test_the_hash_of_a_suite_covers_its_hidden_tests(tmp_path: Path):
    command = "{type: command, run: ./check, tests: hidden}"
    text = GOOD.replace("{type: contains, text: hello}", command)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/check").write_text("exit 1", encoding="utf-8")
    (tmp_path / "basics.yaml").write_text(text, encoding="utf-8")
    before = read_suite(tmp_path / "basics.yaml").hash
    assert read_suite(tmp_path / "basics.yaml").hash == before
    (tmp_path / "hidden/check").write_text("exit 0", encoding="utf-8")
    assert read_suite(tmp_path / "basics.yaml").hash != before


def test_suites_are_found_by_their_suffix(tmp_path: Path):
    assert find_suites(tmp_path) == []
    for name in ("b.yaml", "a.jsonl", "notes.md"):
        (tmp_path / "evals").mkdir(exist_ok=True)
        (tmp_path / "evals" / name).touch()
    assert [file.name for file in find_suites(tmp_path)] == ["a.jsonl", "b.yaml"]
    with pytest.raises(InvalidInput, match="there is no such suite"):
        read_suite(tmp_path / "evals/gone.yaml")
