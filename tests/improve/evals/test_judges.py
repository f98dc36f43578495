"""Judges: verdicts, what never becomes one, their cache, their marks, and labels beside them."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from tests.improve.evals.suite_setup import MODEL, AgentWithSuite, outcomes, results_of
from tests.row_checks import for_each

from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals import eval_labels
from mainspring.improve.evals.graders import Pairwise
from mainspring.improve.evals.quality.calibration import answer_context, calibrate_judges
from mainspring.improve.evals.quality.pair_calibration import PairReport
from mainspring.improve.evals.runs.runner import RunSettings
from mainspring.improve.evals.scoring.judge_bias import LabelledPair, fit_length_bias, pair_verdict
from mainspring.improve.evals.scoring.judges import Judges, model_family, read_pair, read_verdict
from mainspring.improve.evals.scoring.labels import (
    Label,
    add_label,
    read_calibrations,
    read_labels,
    save_calibration,
)
from mainspring.wiring.agent_selection import home_place

MET = '{"reason": "It is there.", "verdict": "met"}'
MALFORMED = [
    "",
    "met",
    "The verdict is met.",
    '{"verdict": "met", "reason": "first the verdict"}',
    '{"verdict": "met"}',
    '{"reason": "", "verdict": "met"}',
    '{"reason": "x", "verdict": "MET"}',
    '{"reason": "x", "verdict": "yes"}',
    '{"reason": "x", "verdict": true}',
    '{"reason": "x", "verdict": "met", "verdict": "not met"}',
    '{"reason": "x", "verdict": "met", "\\u0076erdict": "not met"}',
    '{"reason": "x", "verdict": "met", "confidence": 1}',
    '{"reason": "x", "verdict": "met"} {"reason": "y", "verdict": "not met"}',
    '[{"reason": "x", "verdict": "met"}]',
    '{"reason": "x", "verdict": "met"',
    'Sure! {"reason": "x", "verdict": "met"}',
    '```json\n{"reason": "x", "verdict": "met"}\n```\n```json\n{}\n```',
    '{"reason": null, "verdict": "met"}',
    "null",
]


@for_each("reply", MALFORMED)
def test_a_malformed_reply_never_becomes_a_verdict(reply: str):
    with pytest.raises(InvalidInput):
        read_verdict(reply, ())
    with pytest.raises(InvalidInput):
        read_pair(reply.replace("verdict", "better").replace("met", "first"))


def test_a_verdict_is_read_from_plain_and_fenced_json():
    assert read_verdict(MET, ()) == (1.0, "It is there.")
    assert read_verdict(f"```json\n{MET}\n```", ())[0] == 1.0
    assert read_pair('{"reason": "x", "better": "second"}') == "second"


def judge_suite(model: str | None = None) -> dict[str, object]:
    criteria = [{"name": "polite", "text": "The answer is polite."}]
    grader: dict[str, object] = {"type": "judge", "criteria": criteria}
    if model is not None:
        grader["model"] = model
    cases = [{"id": f"c{at}", "input": f"Greet {at}", "graders": [grader]} for at in range(3)]
    return {"cases": cases, "parallel": 1}


async def test_an_uncalibrated_judge_is_marked_until_it_has_labels(
    agent: AgentWithSuite, capfd: pytest.CaptureFixture[str]
):
    agent.write_model(
        {"when": "Criterion:", "steps": [{"says": MET}]}, {"steps": [{"says": "Good day."}]}
    )
    suite = agent.write_suite(judge_suite())
    run = await agent.run(suite)
    assert outcomes(run) == {"c0": "passed", "c1": "passed", "c2": "passed"}
    [grade] = results_of(run, "c0")[0].grades
    assert grade.note == "judge not calibrated: 0 labels; judge of the judged model's family"
    verdicts = list(home_place(agent.settings, "verdicts").iterdir())
    assert len(verdicts) == 3
    await eval_labels.label(agent.settings, run=run.id, verdict=True)
    assert [label.passed for label in read_labels(suite)] == [True] * 3
    await eval_labels.calibrate(agent.settings, suite="basics", model=MODEL)
    assert "3 labels, agrees on 100%" in capfd.readouterr().out
    [known] = read_calibrations(suite).values()
    assert (known.labels, known.agreement) == (3, 1.0)
    again = await agent.run(suite, settings=RunSettings(fresh=True))
    note = results_of(again, "c0")[0].grades[0].note or ""
    assert note.startswith("judge not calibrated: 3 labels")


async def test_a_judge_without_a_verdict_is_an_error_and_not_a_pass(agent: AgentWithSuite):
    agent.write_model(
        {"when": "Criterion:", "steps": [{"says": "Great, PASS!"}]},
        {"steps": [{"says": "x"}]},
    )
    run = await agent.run(agent.write_suite(judge_suite()))
    assert set(outcomes(run).values()) == {"error"}
    assert "gave no verdict" in (results_of(run, "c0")[0].error or "")
    assert not home_place(agent.settings, "verdicts").exists()


async def test_a_failed_constraint_skips_the_judge(agent: AgentWithSuite, tmp_path: Path):
    agent.write_model({"when": "Greet", "steps": [{"says": "hello"}]})  # no part for a judge
    suite = judge_suite()
    suite["graders"] = [{"type": "contains", "text": "bye"}]
    run = await agent.run(agent.write_suite(suite))
    assert set(outcomes(run).values()) == {"failed"}
    assert run.cost_usd == Decimal(0)


def test_a_pair_counts_only_if_both_orders_agree():
    assert pair_verdict(2, 2, lengths=(1, 1)) == "first"
    assert pair_verdict(1, 2, lengths=(1, 1)) == "tie"
    assert pair_verdict(0, 2, lengths=(1, 1)) == "second"
    assert pair_verdict(4, 6, lengths=(1, 1)) == "first"


def test_length_bias_of_a_judge_is_corrected():
    pairs = [
        LabelledPair(first_is_better=at % 2 == 0, length_ratio=ratio, share=float(ratio > 1))
        for at in range(20)
        for ratio in (0.5, 2.0)
    ]
    bias = fit_length_bias(pairs)
    assert bias > 1
    assert pair_verdict(4, 6, lengths=(200, 100), length_bias=bias) != "first"
    assert pair_verdict(4, 6, lengths=(100, 200), length_bias=bias) == "first"
    assert fit_length_bias([]) == 0


LONG, SHORT = "It is forty-two, as the table on the second page says." * 3, "It is 42."


async def prefers_the_longer(model: str, system: str, question: str) -> tuple[str, Decimal]:
    _, first, second, _ = re.split(r"\n*=== (?:FIRST|SECOND|END).* ===\n*", question)
    better = "first" if len(first) > len(second) else "second"
    return json.dumps({"reason": "It says more.", "better": better}), Decimal(0)


async def test_a_calibrated_pairwise_judge_gives_nothing_for_length(
    agent: AgentWithSuite, tmp_path: Path
):
    """People like short and long answers alike; the judge only looks at the length."""
    grader = {"type": "pairwise", "model": "other:judge"}
    cases = [
        {"id": f"c{at}", "input": "How much?", "gold": SHORT, "graders": [grader]}
        for at in range(24)
    ]
    suite = agent.write_suite({"cases": cases})
    for at in range(24):
        for passed in (True, False):
            text = (LONG if (at % 2 == 0) == passed else SHORT) + f" {at}"
            made = Label(
                case_id=f"c{at}",
                session_id=f"s{at}{passed}",
                answer=text,
                passed=passed,
                by="ann",
                time=datetime(2026, 11, 17, tzinfo=UTC),
            )
            add_label(suite, made)
    judges = Judges(
        ask=prefers_the_longer,
        verdicts=tmp_path / "verdicts",
        default_model="x:a",
        judged_model="x:a",
    )
    [report] = await calibrate_judges(judges, suite, read_labels(suite))
    assert isinstance(report, PairReport)
    assert report.calibration.labels >= 20
    assert report.calibration.length_bias > 1
    assert report.identical_first == 0.5
    padded = answer_context(suite, suite.suite.cases[0], LONG)
    pairwise = suite.suite.cases[0].graders[0]
    assert isinstance(pairwise, Pairwise)
    assert (await judges.pairwise(pairwise, padded))[0] == 1.0  # before it is calibrated
    save_calibration(suite, report.calibration)
    judges.calibrations = read_calibrations(suite)
    assert (await judges.pairwise(pairwise, padded))[0] < 1.0
    assert judges.note(pairwise) != "judge not calibrated: 0 labels"


def test_a_model_family_is_recognized_with_any_provider():
    assert model_family("anthropic:claude-sonnet-4-5") == "claude"
    assert model_family("openrouter:anthropic/claude-3.5-haiku") == "claude"
    assert model_family("openai:gpt-5") == "gpt"
