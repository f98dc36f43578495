"""Weights of the search over passages, fitted to questions whose evidence is known: a listwise
softmax over candidates, by gradient descent. Needs numpy.

`bench/run.py memory` fits them once for each conversation on the other ones, and measures with
these: no conversation is searched with weights that have seen its questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STEPS = 250
RATE = 0.15
PENALTY = 0.01
CANDIDATES = 150


@dataclass(frozen=True, slots=True)
class Example:
    """The candidates of one question: their features, and which are evidence."""

    features: Floats
    is_evidence: NDArray[np.bool_]


def fit(names: Sequence[str], examples: Sequence[Example]) -> dict[str, float]:
    """Weights for features whose values are as `weights = 1` gives them."""
    useful = [_shortened(names, item) for item in examples if item.is_evidence.any()]
    size = max(len(item.is_evidence) for item in useful)
    features = np.zeros((len(useful), size, len(names)))
    wanted = np.zeros((len(useful), size))
    present = np.zeros((len(useful), size), bool)
    for at, item in enumerate(useful):
        count = len(item.is_evidence)
        features[at, :count] = item.features
        wanted[at, :count] = item.is_evidence / item.is_evidence.sum()
        present[at, :count] = True
    spread = features[present].std(axis=0) + 1e-6
    weights = _descend(features / spread, wanted, present) / spread
    return dict(zip(names, weights.tolist(), strict=True))


def _shortened(names: Sequence[str], item: Example) -> Example:
    """The best by words and all evidence: the rest teaches nothing."""
    columns = [at for at, name in enumerate(names) if name in ("near", "window", "vector")]
    best = np.argsort(-item.features[:, columns].sum(axis=1), kind="stable")[:CANDIDATES]
    chosen = np.union1d(best, np.flatnonzero(item.is_evidence))
    return Example(item.features[chosen], item.is_evidence[chosen])


def _descend(features: Floats, wanted: Floats, present: NDArray[np.bool_]) -> Floats:
    weights = np.zeros(features.shape[2])
    mean, square = weights.copy(), weights.copy()
    for step in range(1, STEPS + 1):
        scores = np.where(present, features @ weights, -1e9)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        pull = np.einsum("qc,qcf->f", wanted - shares, features) / len(features)
        slope = PENALTY * weights - pull
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        rate = RATE if step < 0.6 * STEPS else 0.3 * RATE
        weights -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return weights
