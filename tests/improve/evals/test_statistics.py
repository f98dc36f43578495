"""The numbers against slow ways of getting them, and the gate against worlds of known truth."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.improve.evals.gate.comparison import CaseResult, compare, summarize
from mainspring.improve.evals.statistics import (
    cohen_kappa,
    mcnemar_mid_p,
    mean_interval,
    paired_test,
    pass_all_k,
    pass_at_k,
    sign_flip_p,
)


def slow_sign_flip_p(differences: list[float]) -> float:
    """Every pattern of signs, one by one."""
    seen = sum(differences)
    sums = [
        sum(sign * abs(value) for sign, value in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    above = sum(value > seen + 1e-9 for value in sums)
    equal = sum(abs(value - seen) <= 1e-9 for value in sums)
    return (above + equal / 2) / len(sums)


@given(st.lists(st.sampled_from([-1, -2 / 3, -1 / 3, 0, 1 / 3, 2 / 3, 1]), min_size=1, max_size=9))
def test_sign_flip_p_counts_every_pattern(differences: list[float]):
    if any(differences):
        assert sign_flip_p(differences) == pytest.approx(slow_sign_flip_p(differences))
    else:
        assert sign_flip_p(differences) == 1


def test_mcnemar_mid_p_halves_the_observed_outcome():
    assert mcnemar_mid_p(5, 0) == pytest.approx(0.5**5 / 2)
    assert mcnemar_mid_p(3, 3) == pytest.approx(0.5)
    assert mcnemar_mid_p(0, 0) == 1
    assert mcnemar_mid_p(8, 2) < 0.05 < mcnemar_mid_p(7, 3)


def test_pass_at_k_and_pass_all_k_count_choices_of_k_trials():
    assert pass_at_k(4, 2, 2) == pytest.approx(1 - 1 / 6)
    assert pass_all_k(4, 2, 2) == pytest.approx(1 / 6)
    assert (pass_at_k(3, 3, 3), pass_all_k(3, 3, 3)) == (1, 1)
    assert (pass_at_k(1, 1, 2), pass_all_k(1, 1, 2)) == (None, None)


def test_an_interval_covers_the_true_value_as_often_as_stated():
    rng = random.Random(4)
    hits = 0
    for _ in range(400):
        means = [sum(rng.random() < p for _ in range(3)) / 3 for p in [0.2, 0.9, 0.6] * 20]
        interval = mean_interval(means)
        hits += interval.low <= (0.2 + 0.9 + 0.6) / 3 <= interval.high
    assert hits / 400 >= 0.93
    assert mean_interval([1.0] * 10).low == pytest.approx(0.722, abs=0.001)
    assert (mean_interval([]).low, mean_interval([]).high) == (0, 1)


def results(rates: list[tuple[int, int]], tag: str = "all") -> dict[str, CaseResult]:
    return {
        f"c{at}": CaseResult(trials=(1.0,) * passed + (0.0,) * (trials - passed), tags=(tag,))
        for at, (passed, trials) in enumerate(rates)
    }


def test_a_comparison_names_regressions_and_says_when_it_cannot_tell():
    before = results([(5, 5)] * 8 + [(0, 5)] * 2)
    after = results([(5, 5)] * 7 + [(0, 5)] + [(0, 5)] * 2)
    compared = compare(before, after)
    assert compared.regressed == ("c7",)
    assert compared.verdict == "not enough cases"
    assert compared.text.startswith(f"not enough cases: {compared.more_cases} more")
    assert compared.more_cases > 0
    worse = compare(results([(1, 1)] * 30), results([(0, 1)] * 30))
    assert (worse.verdict, worse.regressed) == ("worse", ())  # one trial proves nothing of a case
    assert compare(results([(0, 1)] * 30), results([(1, 1)] * 30)).verdict == "better"
    equal = compare(results([(2, 3)] * 50), results([(2, 3)] * 50))
    assert (equal.verdict, equal.test.p_better) == ("not enough cases", 1)


def test_a_summary_names_flaky_cases_and_groups_by_tag():
    summary = summarize({**results([(3, 3), (1, 3)]), "x": CaseResult(trials=(0.0,) * 3)})
    assert summary.flaky == ("c1",)
    assert summary.tags == {"all": (2, pytest.approx(2 / 3))}
    assert summary.pass_all == pytest.approx(1 / 3)
    assert summary.pass_at == pytest.approx(2 / 3)


def world(rng: random.Random, delta: float) -> tuple[list[list[float]], list[list[float]]]:
    """150 cases x 3 trials with their own chances, and a grader that errs in 5 %."""

    def trials(chance: float) -> list[float]:
        return [float((rng.random() < chance) != (rng.random() < 0.05)) for _ in range(3)]

    chances = [rng.betavariate(0.8, 0.6) for _ in range(150)]
    moved = [min(1.0, max(0.0, chance + delta + rng.uniform(-0.15, 0.15))) for chance in chances]
    return [trials(chance) for chance in chances], [trials(chance) for chance in moved]


@pytest.mark.parametrize(("delta", "low", "high"), [(0, 0, 0.08), (-0.05, 0, 0.02), (0.2, 0.98, 1)])
def test_a_change_is_found_better_as_often_as_expected(delta: float, low: float, high: float):
    """Wide bounds for few worlds; `bench/run.py evals` measures the gate's own numbers."""
    rng = random.Random(11)
    share = sum(paired_test(*world(rng, delta)).p_better < 0.05 for _ in range(150)) / 150
    assert low <= share <= high


def test_kappa_is_agreement_beyond_chance():
    one, other = [True] * 5 + [False] * 5, [True] * 4 + [False] * 6
    kappa, interval = cohen_kappa(one, other)
    assert kappa == pytest.approx(0.8)
    assert interval.low < 0.8 <= interval.high
    assert cohen_kappa([True, True], [True, True])[0] == 0
