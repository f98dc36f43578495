"""The weights of the parts of a passage's score, as `bench/memory_weights.py` fits them to
two-person conversations (LoCoMo). A single passage has only its own words and its date, which have
the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping

WEIGHTS: Mapping[str, float] = {
    "near": 5.0,
    "window": 2.65,
    "relative": 1.15,
    "container": 3.0,
    "whole": 1.4,
    "pairs": 1.55,
    "related": 1.05,
    "length": 0.25,
    "question": -0.65,
    "time": 0.25,
    "when": 1.85,
    "author": 1.8,
    "month": 3.85,
    "day": 3.65,
    "year": 0.6,
    "number": 0.8,
    "name": 0.85,
    "answer": 4.2,
    "self": 0.95,
    "place": 1.75,
    "person": 1.7,
    "title": 1.6,
    "duration": 1.35,
}

VECTOR_WEIGHTS: Mapping[str, float] = {
    "near": 3.15,
    "window": 1.75,
    "relative": 0.4,
    "container": 0.0,
    "whole": 1.2,
    "pairs": 1.25,
    "related": 0.5,
    "length": 0.2,
    "question": -0.6,
    "time": 0.25,
    "when": 1.75,
    "author": 2.1,
    "month": 3.9,
    "day": 3.35,
    "year": 0.6,
    "number": 0.75,
    "name": 0.75,
    "answer": 4.2,
    "self": 0.8,
    "place": 1.7,
    "person": 1.55,
    "title": 1.65,
    "duration": 1.45,
    "vector": 3.8,
    "words": 1.55,
    "words_nearby": 2.95,
}
"""Weights with vectors of texts and words."""
WHOLE_VECTOR_WEIGHTS: Mapping[str, float] = {
    "near": 4.7,
    "window": 1.85,
    "relative": 0.8,
    "container": 2.65,
    "whole": 1.35,
    "pairs": 1.6,
    "related": 0.75,
    "length": 0.35,
    "question": -0.6,
    "time": 0.25,
    "when": 1.8,
    "author": 2.1,
    "month": 3.85,
    "day": 3.25,
    "year": 0.65,
    "number": 0.75,
    "name": 0.75,
    "answer": 3.65,
    "self": 0.85,
    "place": 1.75,
    "person": 1.4,
    "title": 1.65,
    "duration": 1.5,
    "vector": 4.4,
    "words": 0.0,
    "words_nearby": 0.0,
}
"""Weights with vectors of texts only, as an embedding endpoint returns them."""
