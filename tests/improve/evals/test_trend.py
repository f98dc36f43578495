"""Whether a suite gets worse: the chart over its runs."""

from datetime import UTC, datetime
from random import Random

from mainspring.improve.evals.trend import REFERENCE_RUNS, RunRate, trend

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


def test_a_suite_that_stays_as_it_was_hardly_ever_raises_an_alarm():
    assert share_of_alarms(*[0.9] * (REFERENCE_RUNS + RUNS)) <= 0.15


def test_a_drop_is_noticed_within_three_runs():
    assert share_of_alarms(*[0.9] * REFERENCE_RUNS, *[0.7] * 3) >= 0.9


def test_a_suite_that_never_failed_may_fail_once():
    [*first] = rates(Random(1), *[1.0] * (REFERENCE_RUNS + 1))
    once = [*first, RunRate(run_id="x", started=first[0].started, passed=49, trials=50)]
    assert not trend(once).is_alarm
    many = [*first, RunRate(run_id="x", started=first[0].started, passed=40, trials=50)]
    assert trend(many).is_alarm


def test_an_alarm_ends_when_the_suite_recovers_and_few_runs_say_nothing():
    random = Random(2)
    dropped = rates(random, *[0.9] * REFERENCE_RUNS, *[0.5] * 2)
    assert trend(dropped).is_alarm
    assert not trend([*dropped, *rates(random, *[1.0] * 30)]).is_alarm
    assert trend(dropped[: REFERENCE_RUNS - 1]).reference is None
