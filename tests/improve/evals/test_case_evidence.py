"""What single cases prove, what the gate says it cannot see, and which runs become a baseline."""

import json
import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.improve.evals.suite_setup import MODEL, AgentWithSuite

from mainspring.core import clock
from mainspring.core.events import EvalCaseEnded, EvalRunCreated, EvalRunEnded
from mainspring.core.ids import SESSION, new_id
from mainspring.edges.cli.evals import eval as eval_command
from mainspring.edges.cli.evals.eval import RunningArguments, SelectionArguments
from mainspring.edges.cli.evals.eval_report import ReportFiles
from mainspring.improve.evals.exchange.inspect_log import inspect_log
from mainspring.improve.evals.exchange.skill_creator import benchmark_files
from mainspring.improve.evals.gate.baseline import baseline_of, read_baseline
from mainspring.improve.evals.gate.case_evidence import case_evidence
from mainspring.improve.evals.gate.comparison import case_results, compare, summarize
from mainspring.improve.evals.gate.decision import baseline_check, gate, plan_notes
from mainspring.improve.evals.reports.trend import run_rate
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.statistics import (
    Passes,
    fewer_passes_p,
    least_fewer_passes_p,
    tarone_divisor,
)
from mainspring.improve.evals.suite import Case, Gate, Suite

Outcomes = dict[str, str]
"""The trials by case: `p`, `f` and `e` for passed, failed and error."""
WORDS = {"p": "passed", "f": "failed", "e": "error"}


def run_of(outcomes: Outcomes) -> EvalRun:
    created = EvalRunCreated(
        run_id=new_id(SESSION),
        suite="made",
        suite_hash="",
        agent_name="tested",
        model="scripted:x",
        cases=dict.fromkeys(outcomes, ""),
        trials=1,
    )
    run = EvalRun(created, clock.now())
    for name, letters in outcomes.items():
        for number, letter in enumerate(letters, 1):
            run.results[name, number] = EvalCaseEnded(
                case_id=name,
                trial=number,
                case_hash="",
                outcome=WORDS[letter],  # pyright: ignore[reportArgumentType] (one of the three)
                score=float(letter == "p"),
                session_id="",
            )
    run.ended = EvalRunEnded(status="completed", passed=0, failed=0, errors=0, cost_usd="0")
    return run


def suite_of(outcomes: Outcomes, *, required: str = "", settings: Gate | None = None) -> Suite:
    cases = tuple(Case(id=name, input="x", must_pass=name in required) for name in outcomes)
    return Suite(name="made", cases=cases, gate=settings or Gate())


def many(count: int, letters: str) -> Outcomes:
    return {f"c{at}": letters for at in range(count)}


def slow_fewer_passes_p(before: Passes, after: Passes) -> float:
    """Every way to choose which trials passed, one by one."""
    trials = range(before.trials + after.trials)
    ways = list(combinations(trials, before.passed + after.passed))
    few = sum(sum(at >= before.trials for at in way) <= after.passed for way in ways)
    return few / len(ways)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 5), st.integers(0, 5))
def test_fishers_test_counts_every_way(one: int, other: int, passed: int, then: int):
    before, after = Passes(min(one, passed), one), Passes(min(other, then), other)
    p = fewer_passes_p(before, after)
    assert p == pytest.approx(slow_fewer_passes_p(before, after))
    assert least_fewer_passes_p(before, after) <= p + 1e-12


def test_tests_that_can_prove_nothing_do_not_weaken_the_others():
    assert tarone_divisor([1.0] * 49 + [1e-4], 0.005) == 1
    assert tarone_divisor([1e-4] * 50, 0.005) == 50
    assert tarone_divisor([], 0.005) == 1


def test_a_case_is_called_worse_only_as_often_as_the_level_allows():
    rng = random.Random(5)

    def passes() -> dict[str, Passes]:
        return {
            f"c{at}": Passes(sum(rng.random() < 0.5 for _ in range(10)), 10) for at in range(40)
        }

    worlds = [case_evidence(passes(), passes(), level=0.05) for _ in range(400)]
    assert sum(bool(world.worse) for world in worlds) / 400 <= 0.08


def test_one_case_that_breaks_closes_the_gate_although_the_rest_is_unchanged():
    before = {**many(49, "p" * 10), "broken": "p" * 10}
    after = {**many(49, "p" * 10), "broken": "f" * 10}
    result = gate(suite_of(before), run_of(after), baseline_of(run_of(before)))
    assert result.reasons == ("regressed: broken (10 of 10 trials before, 0 of 10 now)",)


def test_a_case_with_too_few_trials_is_named_and_so_is_the_number_it_needs():
    before = {**many(49, "ppp"), "broken": "ppp"}
    after = {**many(49, "ppp"), "broken": "fff"}
    result = gate(suite_of(before), run_of(after), baseline_of(run_of(before)))
    assert result.is_open
    text = "\n".join(result.notes)
    assert "perhaps regressed: broken (3 of 3 trials before, 0 of 3 now)" in text
    assert "8 trials in both runs can" in text


def test_noise_of_single_trials_does_not_close_the_gate():
    before = {**many(48, "p"), "one": "p", "two": "f"}
    after = {**many(48, "p"), "one": "f", "two": "p"}
    assert gate(suite_of(before), run_of(after), baseline_of(run_of(before))).is_open


def test_the_gate_says_how_often_it_closes_by_chance_and_what_it_lacks():
    outcomes = {**many(9, "pp"), "flaky": "pf"}
    run = run_of(outcomes)
    result = gate(suite_of(outcomes), run, baseline_of(run))
    assert "if nothing has changed, this gate closes in at most 5.5% of runs" in result.notes
    assert result.comparison is not None
    assert result.comparison.more_cases > 0
    assert result.comparison.trials_needed
    more = f"{result.comparison.more_cases} more, or {result.comparison.trials_needed} trials"
    assert any(
        more in note for note in plan_notes(suite_of(outcomes), case_results(run.results.values()))
    )
    larger = suite_of(outcomes, settings=Gate(effect=0.5))
    found = gate(larger, run, baseline_of(run)).comparison
    assert found is not None
    assert found.more_cases == 0


def test_required_cases_are_judged_apart_and_say_how_many_trials_they_need():
    before = {**many(20, "pp"), "needed": "pppf"}
    suite = suite_of(before, required="needed")
    run = run_of({**many(20, "pp"), "needed": "pppp"})
    result = gate(suite, run, baseline_of(run_of(before)))
    assert result.is_open
    text = "\n".join(result.notes)
    chance = 1 - (1 - 0.05) * (1 - 0.005) * 0.75**4
    assert f"closes in at most {chance:.1%} of runs (68.4% by cases that must pass)" in text
    assert "4 trials find 34%; 16 trials find 80%" in text
    broken = gate(suite, run_of({**many(20, "pp"), "needed": "pfff"}), baseline_of(run))
    assert broken.reasons == ("must pass: needed (passed 1 of 4 trials)",)


def test_without_a_baseline_the_gate_says_how_often_all_cases_pass():
    outcomes = {"one": "pf"}
    notes = gate(suite_of(outcomes), run_of(outcomes), None).notes
    assert notes == (
        "if nothing has changed, this gate closes in at most 75.0% of runs"
        " (75.0% by the pass rate)",
    )


def test_errors_are_neither_passes_nor_failures():
    outcomes = {**many(10, "pp"), "shaky": "pe", "judge": "ee"}
    run = run_of(outcomes)
    results = case_results(run.results.values())
    assert (results["shaky"].rate, results["shaky"].errors) == (1.0, 1)
    assert "judge" not in results
    assert summarize(results).pass_rate == 1.0
    before = run_of({**many(10, "pp"), "shaky": "pp", "judge": "pp"})
    compared = compare(case_results(before.results.values()), results)
    assert compared.test.losses == 0
    result = gate(suite_of(outcomes), run, baseline_of(before))
    assert result.reasons == (
        "no verdict because of errors: judge; the same command runs only these again",
    )
    assert any("1 trials ended with errors" in note for note in result.notes)


def test_trends_and_exports_leave_out_trials_without_a_verdict():
    run = run_of({"one": "ppf", "two": "ee"})
    rate = run_rate(run)
    assert rate is not None
    assert (rate.passed, rate.trials) == (2, 3)
    assert run_rate(run_of({"two": "ee"})) is None
    samples = json.loads(inspect_log(run, {}, {}))["samples"]
    assert [bool(sample["scores"]) for sample in samples] == [True] * 3 + [False] * 2
    assert [sample["id"] for sample in samples if "error" in sample] == ["two", "two"]
    graded = [name for name in benchmark_files(run, None, "x") if name.endswith("grading.json")]
    assert len(graded) == 3


def test_the_first_baseline_may_be_imperfect_but_not_red():
    outcomes = {"one": "pf", "two": "ff"}
    assert baseline_check(suite_of(outcomes), run_of(outcomes), None).is_open
    assert not baseline_check(suite_of(outcomes, required="one"), run_of(outcomes), None).is_open
    with_error = {"one": "pf", "two": "ee"}
    assert not baseline_check(suite_of(with_error), run_of(with_error), None).is_open
    unfinished = run_of(outcomes)
    unfinished.ended = None
    assert not baseline_check(suite_of(outcomes), unfinished, None).is_open


async def test_a_red_run_never_becomes_the_baseline(
    agent: AgentWithSuite, capfd: pytest.CaptureFixture[str]
):
    case = {"id": "one", "input": "one", "graders": [{"type": "contains", "text": "1"}]}
    suite = agent.write_suite({"cases": [case], "trials": 6})

    async def save(says: str, *, is_gate: bool) -> int:
        agent.write_model({"steps": [{"says": says}]})
        return await eval_command.run(
            agent.settings,
            cases=SelectionArguments(),
            running=RunningArguments(model=MODEL, gate=is_gate, save_baseline=True),
            files=ReportFiles(),
        )

    assert await save("2", is_gate=True) == 1
    assert read_baseline(suite.baseline) is None
    assert "basics.json was not written: 0.0% of the cases pass" in capfd.readouterr().err
    assert await save("1", is_gate=True) == 0
    green = read_baseline(suite.baseline)
    assert green is not None
    for is_gate in (True, False):
        assert await save("2", is_gate=is_gate) == 1
        assert read_baseline(suite.baseline) == green
    assert "regressed: one" in " ".join(capfd.readouterr().err.split())
