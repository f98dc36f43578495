"""Corrects for judges that prefer the first or the longer answer: verdicts that do not depend on
order or length. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

PairVerdict: TypeAlias = Literal["first", "second", "tie"]
_MIN_LOG_ODDS = 0.3
"""Smaller log odds are a tie."""
_STEPS = 300  # of gradient descent


def pair_verdict(
    votes: int, asked: int, *, lengths: tuple[int, int], length_bias: float = 0.0
) -> PairVerdict:
    """The verdict of `asked` votes, half in each order, of which `votes` were for the first answer.
    One vote in each order counts only if both agree; two votes are too few to correct a length
    bias (`fit_length_bias`)."""
    share = votes / asked
    if asked == 2 or not length_bias:
        return "tie" if share == 0.5 else "first" if share > 0.5 else "second"
    share = min(0.97, max(0.03, share))
    ratio = math.log(max(1, lengths[0]) / max(1, lengths[1]))
    odds = math.log(share / (1 - share)) - length_bias * ratio
    if abs(odds) <= _MIN_LOG_ODDS:
        return "tie"
    return "first" if odds > 0 else "second"


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two answers of which a person prefers one, and a judge's votes in both orders."""

    first_is_better: bool
    length_ratio: float
    """The length of the first answer divided by that of the second."""
    share: float
    """The share of the votes for the first answer."""


def fit_length_bias(pairs: Sequence[LabelledPair]) -> float:
    """The growth of the judge's log odds with the log of the length ratio, beyond what people's
    preferences explain: a logistic regression of votes on both."""
    quality = bias = 0.0
    for _ in range(_STEPS if pairs else 0):
        by_quality = by_length = 0.0
        for pair in pairs:
            side, length = (1 if pair.first_is_better else -1), math.log(pair.length_ratio)
            error = pair.share - 1 / (1 + math.exp(-(quality * side + bias * length)))
            by_quality, by_length = by_quality + error * side, by_length + error * length
        quality += 2 * by_quality / len(pairs)
        bias += 2 * by_length / len(pairs)
    return bias
