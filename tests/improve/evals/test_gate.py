"""The gate in CI, its reports, and the health of a suite."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from tests.improve.evals.suite_setup import MODEL, AgentWithSuite

from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals import eval as eval_command
from mainspring.edges.cli.evals import eval_health
from mainspring.edges.cli.evals.eval import RunningArguments, SelectionArguments
from mainspring.edges.cli.evals.eval_report import ReportFiles
from mainspring.improve.evals.evaluation import evaluate
from mainspring.improve.evals.gate.baseline import baseline_of, encode_baseline, read_baseline
from mainspring.improve.evals.gate.comparison import compare
from mainspring.improve.evals.gate.decision import gate
from mainspring.improve.evals.quality.suite_health import check_health
from mainspring.improve.evals.reports.html_report import html_page
from mainspring.improve.evals.reports.report_files import junit, markdown
from mainspring.improve.evals.runs.run_log import list_runs

HOSTILE = "<script>alert(1)</script> `code` | ]]> & \x1b[31m"
CASES = [
    {"id": "one", "input": "one", "tags": ["<i>"], "graders": [{"type": "contains", "text": "1"}]},
    {"id": "two", "input": "two", "graders": [{"type": "contains", "text": "2"}]},
]


def run_command(
    agent: AgentWithSuite, *, is_gate: bool = True, saves: bool = False, files: ReportFiles
):
    return eval_command.run(
        agent.settings,
        cases=SelectionArguments(),
        running=RunningArguments(model=MODEL, gate=is_gate, save_baseline=saves),
        files=files,
    )


async def test_the_gate_closes_on_a_regression_that_its_trials_prove_and_names_it(
    agent: AgentWithSuite, capfd: pytest.CaptureFixture[str]
):
    agent.write_suite({"cases": CASES, "trials": 6})
    agent.write_model({"steps": [{"says": "1"}]})
    files = ReportFiles(junit="out.xml", markdown="out.md", html="out.html")
    assert await run_command(agent, files=files) == 1  # without a baseline, everything must pass
    out = capfd.readouterr().out
    assert out.startswith("RESULT  CASE  TRIAL  SCORE  TURNS  CALLS  TIME  COST  WHY")
    assert "gate closed" in out
    assert await run_command(agent, is_gate=False, saves=True, files=ReportFiles()) == 0
    assert await run_command(agent, files=ReportFiles()) == 0  # no worse than the baseline
    agent.write_model({"steps": [{"says": "2"}]})
    assert await run_command(agent, files=files) == 1
    out = capfd.readouterr().out
    regressed = "regressed: one (6 of 6 trials before, 0 of 6 now)"
    assert regressed in " ".join(out.split())
    assert "not enough cases" in out
    assert regressed in (agent.folder / "out.md").read_text(encoding="utf-8")
    tree = ElementTree.parse(agent.folder / "out.xml")
    assert [case.get("name") for case in tree.iter("testcase") if len(case)] == [
        f"one trial {number}" for number in range(1, 7)
    ]
    page = (agent.folder / "out.html").read_text(encoding="utf-8")
    assert "<!doctype html>" in page
    assert "<summary>log</summary><pre>2</pre>" in page
    assert page.index("The gate is closed") < page.index(regressed) < page.index("<dt>run</dt>")
    order = [match[1] for match in re.finditer('<article class="([a-z]+)', page)]
    assert order == sorted(order), "failures come first"
    assert '<th scope="row"><a href="#case-one">one</a></th><td>0 of 6</td>' in page


async def test_a_failing_must_pass_case_closes_the_gate_whatever_the_baseline(
    agent: AgentWithSuite,
):
    suite = agent.write_suite({"cases": [{**CASES[0], "must_pass": True}, CASES[1]]})
    run = await agent.run(suite)
    result = gate(suite.suite, run, baseline_of(run))
    assert (result.is_open, result.reasons) == (False, ("must pass: one (passed 0 of 1 trials)",))


async def test_an_unfinished_run_does_not_open_the_gate(agent: AgentWithSuite):
    suite = agent.write_suite({"cases": CASES})
    run = await agent.run(suite)
    baseline = baseline_of(run)
    run.ended = None
    assert gate(suite.suite, run, baseline).reasons == ("the run has not ended",)


async def test_a_baseline_is_read_as_written_and_a_damaged_one_is_refused(
    agent: AgentWithSuite, tmp_path: Path
):
    run = await agent.run(agent.write_suite({"cases": CASES}))
    file = tmp_path / "baseline.json"
    assert read_baseline(file) is None
    file.write_bytes(encode_baseline(baseline_of(run)))
    assert read_baseline(file) == baseline_of(run)
    file.write_bytes(b"{")
    with pytest.raises(InvalidInput, match="--save-baseline"):
        read_baseline(file)


async def test_reports_escape_hostile_text(agent: AgentWithSuite):
    agent.write_model({"steps": [{"says": HOSTILE}]})
    run = await agent.run(agent.write_suite({"cases": CASES}))
    page = html_page(run, run, {item.session_id: [HOSTILE] for item in run.results.values()}, "1")
    assert "<script" not in page
    assert "<i>" not in page.replace('<i style="width', "")
    assert "default-src 'none'" in page
    assert ElementTree.fromstring(junit(run)).tag == "testsuites"
    text = markdown(run, None)
    assert "`code`" not in text
    assert "\x1b" not in text + junit(run) + page


async def test_the_health_check_names_cases_that_pass_without_work(agent: AgentWithSuite):
    good = {
        "id": "good",
        "input": "x",
        "graders": [{"type": "contains", "text": "42"}],
        "solution": {"steps": [{"says": "42"}]},
        "failure": {"steps": [{"says": "41"}]},
    }
    idle = {"id": "idle", "input": "x", "graders": [{"type": "not_contains", "text": "no"}]}
    wrong = {**good, "id": "wrong", "solution": {"steps": [{"says": "43"}]}, "failure": None}
    lenient = {**good, "id": "lenient", "failure": {"steps": [{"says": "42!"}]}}
    suite = agent.write_suite({"cases": [good, idle, wrong, lenient]})
    async with agent.runner() as runner:
        found = await check_health(runner, suite)
    assert not found.is_healthy
    assert found.noop_passed == ("idle",)
    assert found.oracle_failed == ("wrong",)
    assert found.failure_passed == ("lenient",)
    assert found.shuffled_passed == ("lenient", "wrong")  # they want what their neighbours say
    assert (found.solutions, found.cases) == (3, 4)
    assert msgspec.json.encode(found)


async def test_high_scores_that_miss_the_intent_are_reported(
    agent: AgentWithSuite, capfd: pytest.CaptureFixture[str]
):
    short = {"type": "measure", "value": "answer_chars", "best": 0, "worst": 100, "weight": 1}
    held = {
        "id": "held",
        "input": "x",
        "graders": [{"type": "contains", "text": "forty-two"}, short],
        "solution": {"steps": [{"says": "It is forty-two."}]},
        "failure": {"steps": [{"says": "Ok."}]},
    }
    gamed = {**held, "id": "gamed", "graders": [short]}
    agent.write_suite({"cases": [held, gamed]})
    assert await eval_health.check(agent.settings, json=True) == 1
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    shown = {(row["case_id"], row["outcome"]): row for row in rows}
    assert shown["gamed", "its failing script"]["passed"]
    assert shown["gamed", "doing nothing"]["constraints"] == []
    withheld = shown["held", "its failing script"]
    assert not withheld["passed"]
    assert withheld["incentives"] > withheld["solution"]
    assert withheld["constraints"] == ["contains: contains forty-two"]
    agent.write_suite({"cases": [held]})
    assert await eval_health.check(agent.settings) == 0


async def test_a_candidate_is_scored_separately_from_the_suites_own_runs(agent: AgentWithSuite):
    suite = agent.write_suite({"cases": CASES})
    async with agent.runner() as runner:
        agent_before = await evaluate(runner, suite, None)
        candidate = replace(runner, agent=replace(runner.agent, instructions="Count."))
        scores = await evaluate(candidate, suite, Decimal(1), name="candidate")
        listed = await list_runs(runner.runtime.log, "tested", "basics")
    assert [item.run_id for item in listed] == [agent_before.run_id]
    assert scores.is_complete
    assert set(scores.cases) == {"one", "two"}
    assert compare(agent_before.cases, scores.cases).regressed == ()
