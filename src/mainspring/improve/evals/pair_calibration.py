"""Measures judges of pairs: how often they prefer what people prefer, and what order, padding and
length do to their verdicts. The length bias that is fitted here is what `Judges.pairwise` takes off
again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from mainspring.core.errors import InvalidInput
from mainspring.improve.evals.graders import Pairwise
from mainspring.improve.evals.judge_bias import LabelledPair, fit_length_bias, pair_verdict
from mainspring.improve.evals.judges import Calibration, Judges, grader_hash
from mainspring.improve.evals.labels import Agreement, Label, agreement
from mainspring.improve.evals.suite import Case, SuiteFile

_MAX_PAIRS = 200
_PROBED = 20
"""Answers that are compared with themselves, and with themselves padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """A judge of pairs beside people. A pair is an answer that people passed, or the gold answer,
    and one that they failed."""

    grader: str
    model: str
    agreement: Agreement
    """On pairs that the judge decided."""
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
            "pairwise: a case needs an answer that people failed, beside one that they passed or"
            " its `gold`"
        )
    votes = [await _votes(judges, grader, pair) for pair in pairs]
    answered = [(pair, vote) for pair, vote in zip(pairs, votes, strict=True) if vote is not None]
    asked = 2 * grader.rounds
    bias = fit_length_bias(
        [
            LabelledPair(
                first_is_better=pair.first_is_better,
                length_ratio=max(1, len(pair.first)) / max(1, len(pair.second)),
                share=vote / asked,
            )
            for pair, vote in answered
        ]
    )
    decided = [
        (pair.first_is_better, verdict == "first")
        for pair, vote in answered
        if (verdict := _verdict(pair, vote, asked, bias)) != "tie"
    ]
    people, judge = [truth for truth, _ in decided], [verdict for _, verdict in decided]
    found = agreement(people, judge)
    model = grader.model or judges.default_model
    return PairReport(
        grader=grader.name or "pairwise",
        model=model,
        agreement=found,
        ties=len(answered) - len(decided),
        malformed=len(pairs) - len(answered),
        identical_first=await _probe(judges, grader, pairs, bias, padding=""),
        padding_wins=await _probe(judges, grader, pairs, bias, padding="\n\nIn other words:\n\n"),
        order_flips=_order_flips([vote for _, vote in answered], asked),
        calibration=Calibration(
            judge=grader_hash(grader, model),
            labels=len(answered),
            agreement=found.agreement,
            kappa=found.kappa,
            kappa_low=found.interval.low,
            kappa_high=found.interval.high,
            length_bias=bias,
        ),
    )


def _pairs(cases: dict[str, Case], labels: Sequence[Label]) -> Iterator[_Pair]:
    """The better answer is first in every other pair."""
    number = 0
    for case in cases.values():
        own = [label for label in labels if label.case_id == case.id]
        good = [label.answer for label in own if label.passed]
        good += [case.gold] if case.gold is not None else []
        bad = [label.answer for label in own if not label.passed]
        for better, worse in product(good, bad):
            number += 1
            is_first = number % 2 == 0
            yield _Pair(case, *((better, worse) if is_first else (worse, better)), is_first)


async def _votes(judges: Judges, grader: Pairwise, pair: _Pair) -> int | None:
    """`None`: the judge gave no verdict."""
    try:
        return await judges.votes(grader, pair.case, pair.first, pair.second)
    except InvalidInput:
        return None


def _verdict(pair: _Pair, votes: int, asked: int, bias: float) -> str:
    lengths = (len(pair.first), len(pair.second))
    return pair_verdict(votes, asked, lengths=lengths, length_bias=bias)


async def _probe(
    judges: Judges, grader: Pairwise, pairs: Sequence[_Pair], bias: float, *, padding: str
) -> float:
    worth = {"first": 1.0, "tie": 0.5, "second": 0.0}
    scores: list[float] = []
    for pair in pairs[:_PROBED]:
        longer = f"{pair.first}{padding}{pair.first}" if padding else pair.first
        probe = _Pair(pair.case, longer, pair.first, True)
        votes = await _votes(judges, grader, probe)
        if votes is not None:
            scores.append(worth[_verdict(probe, votes, 2 * grader.rounds, bias)])
    return sum(scores) / len(scores) if scores else 0.5


def _order_flips(votes: Sequence[int], asked: int) -> float:
    """The least share of rounds in which both orders cannot have agreed."""
    if not votes:
        return 0.0
    return sum(min(vote, asked - vote) for vote in votes) / (len(votes) * (asked / 2))
