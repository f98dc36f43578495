"""Suites of other tools are read, and results are written in a format that other tools read."""

import json
from pathlib import Path

import pytest
from tests.improve.evals.suite_setup import AgentWithSuite

from mainspring.core.errors import InvalidInput
from mainspring.edges.cli import eval_exchange
from mainspring.edges.cli.eval_report import ReportFiles, report
from mainspring.improve.evals.exchange import read_foreign_suite
from mainspring.improve.evals.graders import Bounds, Contains, Judge, Regex
from mainspring.improve.evals.suite_files import read_suite

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


def test_promptfoo_assertions_become_graders_and_code_is_named(tmp_path: Path):
    file = tmp_path / "promptfooconfig.yaml"
    file.write_text(PROMPTFOO, encoding="utf-8")
    suite, notes = read_foreign_suite(file)
    [case] = suite.cases
    assert (case.id, case.input) == ("greets-in-French", "Translate to French: hello")
    assert case.graders[:3] == (
        Contains(text="bonjour", ignore_case=True),
        Regex(pattern="(?i)hello", absent=True),
        Bounds(max_seconds=5.0),
    )
    assert isinstance(case.graders[3], Judge)
    assert notes == ["test 1: the assertion javascript has no counterpart and was left out"]


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
    [case] = read_foreign_suite(file)[0].cases
    [judge] = case.graders
    assert isinstance(judge, Judge)
    assert [criterion.text for criterion in judge.criteria] == item["expectations"]
    assert case.tags == ("pdf",)


def test_a_file_of_neither_format_is_refused(tmp_path: Path):
    (tmp_path / "x.yaml").write_text("a: 1", encoding="utf-8")
    with pytest.raises(InvalidInput, match="neither"):
        read_foreign_suite(tmp_path / "x.yaml")
    for damaged in ("tests: 4", "tests: [{assert: [{value: 1}]}]", "evals: [{}]", "tests: ["):
        (tmp_path / "x.yaml").write_text(damaged, encoding="utf-8")
        with pytest.raises(InvalidInput, match=r"x\.yaml: "):
            read_foreign_suite(tmp_path / "x.yaml")


async def test_an_imported_suite_is_a_suite_and_a_run_is_an_eval_log(agent: AgentWithSuite):
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
