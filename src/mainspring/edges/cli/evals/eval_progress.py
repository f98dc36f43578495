"""Shows the progress of an eval run: a live table at a terminal, lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections import deque
from datetime import timedelta
from decimal import Decimal
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from mainspring.config import Settings
from mainspring.core.events import EvalCaseEnded
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    dollars,
    duration_text,
    sanitize_line,
)
from mainspring.improve.evals.runs.runner import RunPlan

RESULT_HEADS = ["RESULT", "CASE", "TRIAL", "SCORE", "TURNS", "CALLS", "TIME", "COST", "WHY"]
_STYLES = {"passed": "green", "failed": "bold red", "error": "yellow"}
_SHOWN = 12  # rows of the live table


class EvalProgress:
    def __init__(self, settings: Settings, plan: RunPlan, *, is_json: bool) -> None:
        self._screen = Screen(settings)
        self._is_json = is_json
        self._total = len(plan.trials)
        self._settled = len(plan.done) + len(plan.reused)
        self._before = self._settled
        self._passed = sum(item.outcome == "passed" for item in (*plan.done, *plan.reused))
        self._cost = sum((Decimal(item.cost_usd) for item in plan.done), Decimal(0))
        self._recent: deque[EvalCaseEnded] = deque(maxlen=_SHOWN)
        self._has_heads = False
        self._started = time.monotonic()
        is_live = self._screen.can_redraw and not is_json
        console = Console(file=sys.stdout, color_system="auto" if settings.color else None)
        self._live = Live(console=console, auto_refresh=False) if is_live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_result(self, item: EvalCaseEnded) -> None:
        self._settled += 1
        self._passed += item.outcome == "passed"
        self._cost += Decimal(item.cost_usd)
        self._recent.append(item)
        if self._is_json:
            self._screen.json(item)
        elif self._live is None:
            if not self._has_heads:
                self._has_heads = True
                self._screen.line(*((f"{head}  ", "dim") for head in RESULT_HEADS))
            self._screen.line(*((f"{words}  ", style) for words, style in result_row(item)))
        else:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        seconds_each = (time.monotonic() - self._started) / max(1, self._settled - self._before)
        remaining = timedelta(seconds=(self._total - self._settled) * seconds_each)
        title = (
            f"{self._settled}/{self._total}  {self._passed} passed  {dollars(self._cost)}"
            f"  {duration_text(remaining)} left"
        )
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for head in RESULT_HEADS:
            table.add_column(head, no_wrap=True, overflow="ellipsis")
        for item in self._recent:
            row = result_row(item)
            table.add_row(*(sanitize_line(words) for words, _ in row), style=row[0][1])
        return table


def result_row(item: EvalCaseEnded) -> list[StyledText]:
    style = _STYLES[item.outcome]
    return [
        (f"{item.outcome}{' (unchanged)' if item.from_run else ''}", style),
        (item.case_id, "bold"),
        (str(item.trial), ""),
        (f"{item.score:.2f}", ""),
        (str(item.turns), ""),
        (str(item.tool_calls), ""),
        (duration_text(timedelta(seconds=item.seconds)), "dim"),
        (dollars(Decimal(item.cost_usd)), "dim"),
        (_why(item), "dim"),
    ]


def _why(item: EvalCaseEnded) -> str:
    """The error of a trial, or its first failed check."""
    if item.error:
        return item.error
    failures = (
        f"{grade.grader}: failed: {check.name}"
        for grade in item.grades
        for check in grade.checks
        if not check.passed
    )
    return next(failures, "")
