"""What a benchmark says: one line for each thing measured, most of them ratios of one run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    name: str
    value: float
    unit: str
    target: str = ""
    """`<= 1.5` or `>= 5`; empty for what is only told."""
    detail: str = ""

    @property
    def is_met(self) -> bool | None:
        if not self.target:
            return None
        sign, bound = self.target.split()
        return self.value <= float(bound) if sign == "<=" else self.value >= float(bound)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return percentile(values, 50)


def as_json(measures: Iterable[Measure]) -> str:
    return "\n".join(
        json.dumps({**asdict(measure), "is_met": measure.is_met}) for measure in measures
    )


def as_table(measures: Sequence[Measure]) -> str:
    width = max((len(item.name) for item in measures), default=0)
    lines: list[str] = []
    for measure in measures:
        verdict = {True: "ok", False: "MISSED", None: ""}[measure.is_met]
        value = f"{measure.value:,.2f}" if measure.value < 100 else f"{measure.value:,.0f}"
        figure = f"{value} {measure.unit}"
        line = (
            f"{measure.name:<{width}}  {figure:>14}  {measure.target:<8} {verdict:<7} "
            f"{measure.detail}"
        )
        lines.append(line.rstrip())
    return "\n".join(lines)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
