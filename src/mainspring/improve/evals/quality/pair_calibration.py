"""Measures judges of pairs: how often they agree with people, and how order, padding and length
change their verdicts. `Judges.pairwise` corrects for the length bias that is fitted here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from mainspring.core.errors import InvalidInput
from mainspring.improve.evals.graders import Pairwise
from mainspring.improve.evals.scoring.judge_bias import LabelledPair, fit_length_bias, pair_verdict
from mainspring.improve.evals.scoring.judges import Calibration, Judges, grader_hash
from mainspring.improve.evals.scoring.labels import Agreement, Label, agreement
from mainspring.improve.evals.suite import Case, SuiteFile

_MAX_PAIRS = 200  # judged; more narrow the interval by little
_PROBED = 20
"""The number of answers that are compared with themselves and with a padded copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """The agreement of a judge of pairs with people. A pair is an answer that people passed (or the
    gold answer) and one that they failed."""

    grader: str
    model: str
    agreement: Agreement
    """The agreement on pairs that the judge decided."""
    ties: int
    malformed: int
    identical_first: float
    """How often the first of two identical answers wins; a tie is half. 0.5 is fair."""
    padding_wins: float
    """How often an answer wins over itself without padding; a tie is half."""
    order_flips: float
    """How often the order alone changes the verdict."""
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class _Pair:
    case: Case
    first: str
    second: str
    first_is_better: bool


async def calibrate_pairs(
    judges: Judges, grader: Pairwise, suite_file: SuiteFile, labels: Sequence[Label]
) -> PairReport:
    """Raises: InvalidInput: people have not passed one answer and failed another of a case."""
    cases = {case.id: case for case in suite_file.suite.cases}
    pairs = list(islice(_pairs(cases, labels), _MAX_PAIRS))
    if not pairs:
        raise InvalidInput(
            "pairwise: a case needs an answer that people failed, and one that they passed or a"
            " `gold`"
        )
    votes = [await _votes(judges, grader, pair) for pair in pairs]
    judged = [(pair, vote) for pair, vote in zip(pairs, votes, strict=True) if vote is not None]
    vote_count = 2 * grader.rounds
    bias = fit_length_bias(
        [
            LabelledPair(
                first_is_better=pair.first_is_better,
                length_ratio=max(1, len(pair.first)) / max(1, len(pair.second)),
                share=vote / vote_count,
            )
            for pair, vote in judged
        ]
    )
    decided = [
        (pair.first_is_better, verdict == "first")
        for pair, vote in judged
        if (verdict := _verdict(pair, vote, vote_count, bias)) != "tie"
    ]
    people, judge = [truth for truth, _ in decided], [verdict for _, verdict in decided]
    result = agreement(people, judge)
    model = grader.model or judges.default_model
    return PairReport(
        grader=grader.name or "pairwise",
        model=model,
        agreement=result,
        ties=len(judged) - len(decided),
        malformed=len(pairs) - len(judged),
        identical_first=await _probe(judges, grader, pairs, bias, padding=""),
        padding_wins=await _probe(judges, grader, pairs, bias, padding="\n\nIn other words:\n\n"),
        order_flips=_order_flips([vote for _, vote in judged], vote_count),
        calibration=result.calibration(
            grader_hash(grader, model), labels=len(judged), length_bias=bias
        ),
    )


def _pairs(cases: dict[str, Case], labels: Sequence[Label]) -> Iterator[_Pair]:
    """Yield all pairs of a good and a bad answer; the better one is first in every other pair."""
    number = 0
    for case in cases.values():
        case_labels = [label for label in labels if label.case_id == case.id]
        good = [label.answer for label in case_labels if label.passed]
        good += [case.gold] if case.gold is not None else []
        bad = [label.answer for label in case_labels if not label.passed]
        for better, worse in product(good, bad):
            number += 1
            is_first = number % 2 == 0
            yield _Pair(case, *((better, worse) if is_first else (worse, better)), is_first)


async def _votes(judges: Judges, grader: Pairwise, pair: _Pair) -> int | None:
    """The votes; `None` if the judge gave no verdict."""
    try:
        return await judges.votes(grader, pair.case, pair.first, pair.second)
    except InvalidInput:
        return None


def _verdict(pair: _Pair, votes: int, vote_count: int, bias: float) -> str:
    lengths = (len(pair.first), len(pair.second))
    return pair_verdict(votes, vote_count, lengths=lengths, length_bias=bias)


async def _probe(
    judges: Judges, grader: Pairwise, pairs: Sequence[_Pair], bias: float, *, padding: str
) -> float:
    points = {"first": 1.0, "tie": 0.5, "second": 0.0}
    scores: list[float] = []
    for pair in pairs[:_PROBED]:
        longer = f"{pair.first}{padding}{pair.first}" if padding else pair.first
        probe = _Pair(pair.case, longer, pair.first, True)
        votes = await _votes(judges, grader, probe)
        if votes is not None:
            scores.append(points[_verdict(probe, votes, 2 * grader.rounds, bias)])
    return sum(scores) / len(scores) if scores else 0.5


def _order_flips(votes: Sequence[int], vote_count: int) -> float:
    """The minimum share of rounds in which the two orders disagreed."""
    if not votes:
        return 0.0
    return sum(min(vote, vote_count - vote) for vote in votes) / (len(votes) * (vote_count / 2))
