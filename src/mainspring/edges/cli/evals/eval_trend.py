"""`mainspring eval trend`: whether suites get worse from run to run."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from mainspring.config import Settings
from mainspring.edges.cli.evals.eval_grade import print_score
from mainspring.edges.cli.evals.eval_suites import SuitesArgument, load_suites
from mainspring.edges.cli.options import AgentFolderOption, JsonOption
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import Screen, StyledText, plural
from mainspring.improve.evals.production_score import ProductionScore, production_score
from mainspring.improve.evals.reports.trend import REFERENCE_RUNS, Trend, suite_trend
from mainspring.improve.evals.runs.run_log import existing_runs
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner

ALARM = 1  # the status if a suite gets worse
_MAX_RUNS = 200  # the newest ones of a suite, of which the trend is


class TrendView(Struct, frozen=True, kw_only=True):
    suite: str
    trend: Trend
    is_alarm: bool
    production: ProductionScore | None


async def show_trend(
    settings: Settings,
    *,
    suites: SuitesArgument = None,
    agent: AgentFolderOption = None,
    json: JsonOption = False,
) -> int:
    """Show whether suites get worse from run to run. Exit status 1 if one does, so that a scheduled
    job can raise an alarm."""
    folder, screen = Path(settings.folder, agent or "."), Screen(settings)
    is_alarm = False
    async with open_suite_runner(settings, RunOptions(agent=folder)) as runner:
        for suite_file in load_suites(folder, suites or []):
            name, log = suite_file.suite.name, runner.runtime.log
            runs = await existing_runs(log, runner.agent.name, name, newest=_MAX_RUNS)
            trend = suite_trend(runs, suite_file.suite)
            is_alarm = is_alarm or trend.is_alarm
            score = await production_score(log, runner.agent.name, name)
            if json:
                raised = trend.is_alarm
                screen.json(TrendView(suite=name, trend=trend, is_alarm=raised, production=score))
            else:
                _print_trend(screen, name, trend)
                print_score(settings, score)
    return ALARM if is_alarm else 0


def _print_trend(screen: Screen, suite: str, trend: Trend) -> None:
    if trend.reference is None:
        explanation = f"later runs are compared with the first {REFERENCE_RUNS}"
        screen.line((suite, "bold"), (f"  {plural(trend.runs, 'run')}; {explanation}", "dim"))
        return
    screen.line((suite, "bold"), (f"  {trend.reference:.0%} in the first {REFERENCE_RUNS}", "dim"))
    rows: list[list[StyledText]] = [
        [
            (short_id(point.rate.run_id), ""),
            (f"{point.rate.started:%Y-%m-%d %H:%M}", "dim"),
            (f"{point.rate.passed}/{point.rate.trials}", ""),
            (f"{point.sum:.1f}", "bold red" if point.is_alarm else ""),
        ]
        for point in trend.points
    ]
    if rows:
        screen.table(["RUN", "STARTED", "PASSED", "CUSUM"], rows)
    if trend.is_alarm:
        screen.line((f"alarm: {suite} passes less often than it did", "bold red"))
