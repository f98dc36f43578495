"""A suite from another tool's files, and functions that its readers share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mainspring.improve.evals.gate.baseline import Baseline
from mainspring.improve.evals.suite import Suite

_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(slots=True, kw_only=True)
class ImportedSuite:
    suite: Suite
    notes: list[str] = field(default_factory=list[str])
    """The parts that have no counterpart and were left out."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Files beside the suite that its cases name, by path."""
    baseline: Baseline | None = None
    """The results in the file, if it has any."""


def as_id(text: str) -> str:
    return _NAME.sub("-", text).strip("-._")[:80] or "case"
