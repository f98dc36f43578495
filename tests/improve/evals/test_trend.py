"""Whether a suite gets worse: the chart over its runs."""

from datetime import UTC, datetime
from random import Random

from tests.improve.evals.suite_setup import AgentWithSuite

from mainspring.improve.evals.reports.trend import REFERENCE_RUNS, RunRate, suite_trend, trend
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.run_log import existing_runs
from mainspring.improve.evals.runs.runner import RunSettings

RUNS = 20
TRIALS = 50


def rates(random: Random, *probabilities: float) -> list[RunRate]:
    return [
        RunRate(
            run_id=f"r{at}",
            started=datetime(2026, 1, 1, tzinfo=UTC),
            passed=sum(random.random() < probability for _ in range(TRIALS)),
            trials=TRIALS,
        )
        for at, probability in enumerate(probabilities)
    ]


def share_of_alarms(*probabilities: float) -> float:
    random = Random(1)
    drawn = [trend(rates(random, *probabilities)) for _ in range(500)]
    return sum(any(point.is_alarm for point in item.points) for item in drawn) / len(drawn)


def test_a_stable_suite_rarely_raises_an_alarm():
    assert share_of_alarms(*[0.9] * (REFERENCE_RUNS + RUNS)) <= 0.15


def test_a_drop_raises_an_alarm_within_three_runs():
    assert share_of_alarms(*[0.9] * REFERENCE_RUNS, *[0.7] * 3) >= 0.9


def test_a_suite_that_never_failed_may_fail_once():
    [*first] = rates(Random(1), *[1.0] * (REFERENCE_RUNS + 1))
    once = [*first, RunRate(run_id="x", started=first[0].started, passed=49, trials=50)]
    assert not trend(once).is_alarm
    many = [*first, RunRate(run_id="x", started=first[0].started, passed=40, trials=50)]
    assert trend(many).is_alarm


async def test_runs_with_another_model_or_few_cases_are_ignored(agent: AgentWithSuite):
    agent.write_model({"when": "hard", "steps": [{"says": "sorry"}]}, {"steps": [{"says": "yes"}]})
    (agent.folder / "other.yaml").write_text("- steps: [{says: sorry}]\n")
    cases = [{"id": f"c{number}", "input": "easy"} for number in range(4)]
    cases.append({"id": "hard", "input": "hard"})
    graders = [{"type": "contains", "text": "yes"}]
    suite_file = agent.write_suite({"graders": graders, "cases": cases})
    fresh = RunSettings(fresh=True)
    for _ in range(REFERENCE_RUNS):
        await agent.run(suite_file, settings=fresh)
    for _ in range(3):
        await agent.run(suite_file, settings=fresh, model="scripted:other.yaml")
        await agent.run(suite_file, Selection(cases=("hard",)), settings=fresh)
    await agent.run(suite_file, settings=fresh)
    async with agent.runner() as runner:
        runs = await existing_runs(runner.runtime.log, "tested", "basics", newest=50)
    shown = suite_trend(runs, suite_file.suite)
    assert (shown.runs, len(shown.points), shown.is_alarm) == (REFERENCE_RUNS + 1, 1, False)


def test_an_alarm_ends_when_the_suite_recovers_and_few_runs_have_no_reference():
    random = Random(2)
    dropped = rates(random, *[0.9] * REFERENCE_RUNS, *[0.5] * 2)
    assert trend(dropped).is_alarm
    assert not trend([*dropped, *rates(random, *[1.0] * 8)]).is_alarm
    assert trend(dropped[: REFERENCE_RUNS - 1]).reference is None
