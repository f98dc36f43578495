"""Suites of other tools are read, and results are written in a format that other tools read."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.improve.evals.suite_setup import AgentWithSuite, outcomes, scripts

from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals import eval_exchange
from mainspring.edges.cli.evals.eval_report import ReportFiles, report
from mainspring.improve.evals.exchange.formats import read_imported_suite
from mainspring.improve.evals.exchange.skill_creator import WITH, WITHOUT
from mainspring.improve.evals.gate.baseline import read_baseline
from mainspring.improve.evals.graders import (
    Bounds,
    Contains,
    Criterion,
    Equals,
    Judge,
    NotContains,
    Regex,
    Similarity,
    Trajectory,
)
from mainspring.improve.evals.suite import Script
from mainspring.improve.evals.suites.suite_files import read_suite

NOW = datetime(2026, 11, 17, tzinfo=UTC)
PROMPTFOO = """\
prompts: ["Translate to {{language}}: {{text}}"]
tests:
  - description: greets in French
    vars: {language: French, text: hello}
    assert:
      - {type: icontains, value: bonjour}
      - {type: not-regex, value: '(?i)hello'}
      - {type: latency, threshold: 5000}
      - {type: javascript, value: "output.length < 100"}
      - {type: llm-rubric, value: It is polite.}
"""


def test_promptfoo_assertions_become_graders_and_code_is_reported(tmp_path: Path):
    file = tmp_path / "promptfooconfig.yaml"
    file.write_text(PROMPTFOO, encoding="utf-8")
    result = read_imported_suite(file, NOW)
    [case], notes = result.suite.cases, result.notes
    assert (case.id, case.input) == ("greets-in-French", "Translate to French: hello")
    assert case.graders[:3] == (
        Contains(text="bonjour", ignore_case=True),
        Regex(pattern="(?i)hello", absent=True),
        Bounds(max_seconds=5.0),
    )
    assert isinstance(case.graders[3], Judge)
    assert notes == ["test 1: the assertion javascript has no counterpart and was left out"]


def test_promptfoo_thresholds_stay_and_what_is_dropped_is_named(tmp_path: Path):
    file = tmp_path / "x.yaml"
    file.write_text(
        "scenarios: []\n"
        "tests: [{vars: {input: hi}, threshold: 0.5, assert: [\n"
        "  {type: rouge-n, value: a b, threshold: 0.6}, {type: similar, value: c},\n"
        "  {type: starts-with, value: 'a+'}, {type: icontains-any, value: [X, y]},\n"
        "  {type: llm-rubric, value: polite, threshold: 0.8, weight: 2},\n"
        "  {type: equals, value: a, threshold: 1}, {type: levenshtein, value: a}]}]\n",
        encoding="utf-8",
    )
    result = read_imported_suite(file, NOW)
    assert result.suite.cases[0].graders == (
        Similarity(text="a b", min=0.6),
        Similarity(text="c", min=0.75),
        Regex(pattern="\\Aa\\+"),
        Contains(text=("X", "y"), any=True, ignore_case=True),
        Judge(criteria=(Criterion(name="rubric", text="polite"),), min=0.8),
        Equals(text="a"),
    )
    assert result.notes == [
        "the file: scenarios was left out",
        "test 1: threshold was left out",
        "test 1: the assertion llm-rubric: weight was left out",
        "test 1: the assertion equals: its threshold was left out",
        "test 1: the assertion similar compares words here, not embeddings",
        "test 1: the assertion levenshtein has no counterpart and was left out",
    ]


def test_promptfoo_defaults_apply_to_every_case(tmp_path: Path):
    file = tmp_path / "x.yaml"
    file.write_text(
        "prompts: [{raw: 'Say {{word}} to {{name}}', label: one}]\n"
        "defaultTest: {vars: {name: Ann}, assert: [{type: contains, value: Ann}]}\n"
        "tests: [{vars: {word: hi}, assert: [\n"
        "  {type: 'trajectory:tool-used', value: {name: bash}}]}]\n",
        encoding="utf-8",
    )
    [case] = read_imported_suite(file, NOW).suite.cases
    assert case.input == "Say hi to Ann"
    assert case.graders == (Contains(text="Ann"), Trajectory(used=("bash",)))


def test_skill_creator_expectations_become_criteria(tmp_path: Path):
    file = tmp_path / "evals.json"
    item = {
        "id": 1,
        "prompt": "Fill the form",
        "expected_output": "",
        "files": [],
        "expectations": ["The form is filled", "No field is empty"],
    }
    file.write_text(json.dumps({"skill_name": "pdf", "evals": [item]}), encoding="utf-8")
    [case] = read_imported_suite(file, NOW).suite.cases
    [judge] = case.graders
    assert isinstance(judge, Judge)
    assert [criterion.text for criterion in judge.criteria] == item["expectations"]
    assert case.tags == ("pdf",)


def test_a_file_of_an_unknown_format_is_refused(tmp_path: Path):
    (tmp_path / "x.yaml").write_text("a: 1", encoding="utf-8")
    with pytest.raises(InvalidInput, match="none of these"):
        read_imported_suite(tmp_path / "x.yaml", NOW)
    for damaged in ("tests: 4", "tests: [{assert: [{value: 1}]}]", "evals: [{}]", "tests: ["):
        (tmp_path / "x.yaml").write_text(damaged, encoding="utf-8")
        with pytest.raises(InvalidInput, match=r"x\.yaml: "):
            read_imported_suite(tmp_path / "x.yaml", NOW)


async def test_an_imported_suite_runs_and_its_run_is_exported_as_an_eval_log(agent: AgentWithSuite):
    source = agent.folder / "promptfooconfig.yaml"
    source.write_text(PROMPTFOO.partition("      - {type: javascript")[0], encoding="utf-8")
    assert await eval_exchange.import_(agent.settings, file=str(source), name="french") == 0
    agent.write_model({"steps": [{"says": "Bonjour"}]})
    run = await agent.run(read_suite(agent.folder / "evals/french.yaml"))
    await report(agent.settings, run=run.id, files=ReportFiles(inspect="log.json"))
    log = json.loads((agent.folder / "log.json").read_bytes())
    assert (log["version"], log["status"]) == (2, "success")
    [sample] = log["samples"]
    assert sample["scores"]["mainspring"]["value"] == "C"
    assert sample["output"]["choices"][0]["message"]["content"] == "Bonjour"
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1.0


async def test_an_inspect_log_becomes_a_suite_with_a_baseline(agent: AgentWithSuite):
    samples = [
        {
            "id": number,
            "epoch": epoch,
            "input": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "6x7?"},
            ],
            "target": "42",
            "scores": {"includes": {"value": "C" if epoch == 1 else "I"}},
        }
        for number in (1, 2)
        for epoch in (1, 2)
    ]
    log = {"version": 2, "eval": {"task": "sums", "model": "x/y"}, "samples": samples}
    (agent.folder / "sums.json").write_text(json.dumps(log), encoding="utf-8")
    assert await eval_exchange.import_(agent.settings, file="sums.json") == 0
    suite = read_suite(agent.folder / "evals/sums.yaml")
    assert suite.suite.cases[0].input == ("6x7?",)
    assert suite.suite.cases[0].graders == (Contains(text="42", ignore_case=True),)
    baseline = read_baseline(suite.baseline)
    assert baseline is not None
    assert {name: case.trials for name, case in baseline.cases.items()} == {
        "1": (1.0, 0.0),
        "2": (1.0, 0.0),
    }
    agent.write_model({"steps": [{"says": "42"}]})
    assert set(outcomes(await agent.run(suite)).values()) == {"passed"}


async def test_exports_for_other_tools_can_be_imported_again(agent: AgentWithSuite):
    graders = [
        {"type": "contains", "text": ["a", "b"], "any": True},
        {"type": "not_contains", "text": "c", "ignore_case": True},
        {"type": "regex", "pattern": "^a"},
        {"type": "bounds", "max_seconds": 5},
        {"type": "trajectory", "order": ["read", "write"]},
    ]
    judge = {"type": "judge", "criteria": [{"name": "polite", "text": "It is polite."}]}
    agent.write_suite({"cases": [{"id": "one", "input": "Say a.", "graders": [*graders, judge]}]})
    files: dict[eval_exchange.ExportFormat, str] = {
        "promptfoo": "out.yaml",
        "skill-creator": "evals.json",
    }
    for to, file in files.items():
        await eval_exchange.export(agent.settings, suite="basics", to=to, output=file)
    [case] = read_imported_suite(agent.folder / "out.yaml", NOW).suite.cases
    assert (case.id, case.input) == ("one", "Say a.")
    assert case.graders[:5] == (
        Contains(text=("a", "b"), any=True),
        NotContains(text="c", ignore_case=True),
        Regex(pattern="^a"),
        Bounds(max_seconds=5.0),
        Trajectory(order=("read", "write")),
    )
    [written] = json.loads((agent.folder / "evals.json").read_text(encoding="utf-8"))["evals"]
    assert written["expectations"] == ["It is polite."]


async def test_runs_become_a_benchmark_with_and_without_a_skill(
    agent: AgentWithSuite, capfd: pytest.CaptureFixture[str]
):
    case = {"id": "one", "input": "x", "graders": [{"type": "contains", "text": "42"}]}
    suite = agent.write_suite({"cases": [case], "trials": 2})
    without = await agent.run(suite)
    agent.write_model({"steps": [{"says": "42"}]})
    run = await agent.run(suite)
    await eval_exchange.benchmark(
        agent.settings, run=run.id, baseline=without.id, output="bench", skill="sums"
    )
    content = json.loads((agent.folder / "bench/benchmark.json").read_bytes())
    assert content["run_summary"]["delta"]["pass_rate"] == "+1.00"
    assert [(item["configuration"], item["result"]["pass_rate"]) for item in content["runs"]] == [
        *[(WITH, 1.0)] * 2,
        *[(WITHOUT, 0.0)] * 2,
    ]
    graded = json.loads(
        (agent.folder / f"bench/eval-1/{WITHOUT}/run-2/grading.json").read_text(encoding="utf-8")
    )
    assert graded["summary"] == {"passed": 0, "failed": 1, "total": 1, "pass_rate": 0.0}
    assert "hello" in graded["expectations"][0]["evidence"]


def harbor_task(folder: Path) -> None:
    files = {
        "task.toml": '[task]\nkeywords = ["easy"]\n[agent]\ntimeout_sec = 60.0\n',
        "instruction.md": "Write 42 into /work/answer.txt; /work/in.txt says why.",
        "environment/Dockerfile": "FROM alpine\nWORKDIR /work\n",
        "environment/in.txt": "because\n",
        "tests/test.sh": (
            'cd /work\nif [ "$(cat answer.txt)" = "$(cat /tests/gold.txt)" ]; then echo 1;'
            " else echo 0; fi > /logs/verifier/reward.txt\n"
        ),
        "tests/gold.txt": "42\n",
        "solution/solve.sh": "cat in.txt\necho 42 > /work/answer.txt\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


async def test_a_harbor_task_becomes_a_case_that_its_solution_passes(agent: AgentWithSuite):
    harbor_task(agent.folder / "tasks/answer")
    assert await eval_exchange.import_(agent.settings, file="tasks") == 0
    suite = read_suite(agent.folder / "evals/tasks.yaml")
    [case] = suite.suite.cases
    assert case.input == "Write 42 into ./answer.txt; ./in.txt says why."
    assert (case.tags, case.timeout_seconds) == (("easy",), 60.0)
    passed = await agent.run(suite, settings=scripts(lambda case: case.solution))
    assert outcomes(passed) == {"answer": "passed"}
    wrong = Script(steps=({"says": "42 is written."},))
    assert outcomes(await agent.run(suite, settings=scripts(lambda _: wrong))) == {
        "answer": "failed"
    }


async def test_a_suite_exported_as_harbor_tasks_can_be_imported_again(agent: AgentWithSuite):
    graders = [
        {"type": "command", "run": "cat sum.txt", "stdout": "42"},
        {"type": "file", "path": "sum.txt", "pattern": "^4"},
    ]
    write = {"tool": "bash", "input": {"command": "echo 42 > sum.txt"}}
    case = {"id": "sum", "input": "Add up.", "files": {"in.txt": "40 2"}, "graders": graders}
    agent.write_suite({"cases": [case]})
    to = "harbor"
    await eval_exchange.export(agent.settings, suite="basics", to=to, output="out")
    await eval_exchange.import_(agent.settings, file="out")
    suite = read_suite(agent.folder / "evals/out.yaml")
    good, bad = (
        Script(steps=({"calls": [write]}, {"says": "Done."})),
        Script(steps=({"says": "?"},)),
    )
    assert outcomes(await agent.run(suite, settings=scripts(lambda _: good))) == {"sum": "passed"}
    assert outcomes(await agent.run(suite, settings=scripts(lambda _: bad))) == {"sum": "failed"}
