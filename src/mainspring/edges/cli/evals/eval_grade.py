"""`mainspring eval grade`: grades the share of real sessions that `grade` in agent.yaml sets, and
shows the production score next to that of the suite's runs."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals.eval_suites import load_suites
from mainspring.edges.cli.options import AgentFolderOption, JsonOption
from mainspring.edges.cli.render.printing import Screen, dollars, plural, print_note
from mainspring.error_table import with_hints
from mainspring.improve.evals.production import (
    IDLE,
    GradingReport,
    ProductionGrader,
    production_graders,
)
from mainspring.improve.evals.production_score import ProductionScore, production_score
from mainspring.runtime.agent_folder.manifest import FILE, read_manifest
from mainspring.runtime.agent_folder.production_settings import ManifestGrade
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner

_NO_KEY = "grade: {suite: NAME, share: 0.05, max_cost_usd_per_day: 1}"


async def grade(
    settings: Settings,
    *,
    agent: AgentFolderOption = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="The judge, if the suite names none."),
    ] = None,
    now: Annotated[
        bool,
        typer.Option("--now", help="Also grade sessions that were used in the last 10 minutes."),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Grade a share of real sessions, each once. `grade` in agent.yaml sets the share. `mainspring
    serve` does this automatically."""
    folder = Path(settings.folder, agent or ".")
    grading = await to_thread.run_sync(read_grading, folder)
    if grading is None:
        raise with_hints(InvalidInput(f"{folder / FILE} has no `grade`"), f"add {_NO_KEY}")
    [suite_file] = load_suites(folder, [f"{grading.suite}.yaml"])
    production_graders(suite_file)
    async with open_suite_runner(settings, RunOptions(agent=folder, model=model)) as runner:
        grader = ProductionGrader(
            runner=runner,
            suite_file=suite_file,
            settings=grading,
            clock=clock.now,
            idle=timedelta(0) if now else IDLE,
        )
        report = await grader.run()
        score = await production_score(runner.runtime.log, runner.agent.name, grading.suite)
    screen = Screen(settings)
    if json:
        for session_grade in report.graded:
            screen.json(session_grade)
        if score is not None:
            screen.json(score)
        return 0
    _print_report(settings, report, grading)
    print_score(settings, score)
    return 0


def read_grading(folder: Path) -> ManifestGrade | None:
    """Blocks. Raises: InvalidInput: agent.yaml has errors."""
    manifest = read_manifest(folder / FILE)
    if manifest.error is not None:
        raise InvalidInput(str(manifest.error))
    return manifest.grade


def _print_report(settings: Settings, report: GradingReport, grading: ManifestGrade) -> None:
    cost = sum((Decimal(session_grade.grading_usd) for session_grade in report.graded), Decimal(0))
    sessions = f"graded {plural(len(report.graded), 'session')} for {dollars(cost)}"
    print_note(settings, f"{sessions}; {grading.share:.1%} of sessions are chosen")
    if report.over_budget:
        limit = dollars(grading.max_cost_usd_per_day)
        sessions = f"{plural(report.over_budget, 'session')} not graded"
        print_note(settings, f"{sessions}: {limit} for the sessions of a day is reached", "yellow")
    if report.is_busy:
        print_note(settings, "another process grades sessions right now", "yellow")


def print_score(settings: Settings, score: ProductionScore | None) -> None:
    if score is None:
        return
    Screen(settings).paragraph((f"{score.suite}: {score.text}", "bold"))
    for note in score.notes:
        print_note(settings, note, "yellow")
