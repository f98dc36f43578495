"""`mainspring eval`: write, run, list and report eval suites."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import EvalCaseEnded
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.eval_progress import RESULT_HEADS, EvalProgress, result_row
from mainspring.edges.cli.event_summary import short_id
from mainspring.edges.cli.options import JsonOption, parse_dollars
from mainspring.edges.cli.printing import Screen, age_text, dollars, plural, print_list, print_note
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.improve.evals.new_suite import write_first_suite
from mainspring.improve.evals.run_log import EvalRun, existing_runs, list_runs, read_run
from mainspring.improve.evals.runner import Plan, RunSettings, Selection, SuiteRunner
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suite_files import EVALS_FOLDER, find_suites, read_suite
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner

app = command_group()

AgentOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--agent", metavar="DIR", help="The agent's folder. [default: this folder]"),
]
RunArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or a unique part of it.")
]


class TierName(StrEnum):
    fast = "fast"
    full = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionArguments:
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="ID", help="Only this case; repeatable.")
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Only cases with this tag; repeatable."),
    ] = None
    tier: Annotated[
        TierName | None, typer.Option(help="`fast` leaves out the cases of the tier full.")
    ] = None
    failed: Annotated[
        bool, typer.Option("--failed", help="Only cases that failed in the last run.")
    ] = False
    trials: Annotated[
        int | None,
        typer.Option(min=1, max=100, metavar="N", help="How often to run each case."),
    ] = None

    def selection(self) -> Selection:
        return Selection(
            cases=tuple(self.case or ()),
            tags=tuple(self.tag or ()),
            tier=None if self.tier is None else self.tier.value,
            only_failed=self.failed,
            trials=self.trials,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningArguments:
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="Instead of the agent's model."),
    ] = None
    budget: Annotated[
        Decimal | None,
        typer.Option(
            "--budget", parser=parse_dollars, metavar="USD", help="The run never costs more."
        ),
    ] = None
    parallel: Annotated[
        int | None, typer.Option(min=1, max=256, metavar="N", help="How many trials at a time.")
    ] = None
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run unchanged cases again; start a new run.")
    ] = False
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the workspaces of passed trials, too.")
    ] = False

    def run_settings(self) -> RunSettings:
        return RunSettings(
            budget_usd=self.budget,
            parallel=self.parallel,
            fresh=self.fresh,
            keeps_workspaces=self.keep,
        )


@command(app)
async def init(settings: Settings, *, agent: AgentOption = None) -> int:
    """Write a first suite into the agent's folder."""
    folder = Path(settings.folder, agent or ".")
    file = write_first_suite(folder)
    screen = Screen(settings)
    screen.line(("wrote ", ""), (str(file.relative_to(folder)), "bold"))
    print_note(settings, "change its cases, then: mainspring eval run")
    return 0


@command(app)
async def run(
    settings: Settings,
    *,
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE]...", help="Names of suites, or their files. [default: all]"
        ),
    ] = None,
    agent: AgentOption = None,
    cases: SelectionArguments,
    running: RunningArguments,
    json: JsonOption = False,
) -> int:
    """Run suites as real sessions and grade them. Exit status 1 if a case does not pass. A run
    that was killed continues; unchanged cases are not run again."""
    folder = Path(settings.folder, agent or ".")
    files = load_suites(folder, suites or [])
    options = RunOptions(agent=folder, model=running.model)
    status = 0
    async with open_suite_runner(settings, options) as runner:
        for suite_file in files:
            outcome = await _run_suite(
                settings, runner, suite_file, cases.selection(), running.run_settings(), json=json
            )
            status = max(status, int(not all_passed(outcome)))
    return status


async def _run_suite(
    settings: Settings,
    runner: SuiteRunner,
    suite_file: SuiteFile,
    selection: Selection,
    run_settings: RunSettings,
    *,
    json: bool,
) -> EvalRun:
    plan = await runner.plan(suite_file, selection, run_settings)
    if not json:
        _print_plan(settings, suite_file, plan, runner.agent.model)
    with EvalProgress(settings, plan, is_json=json) as progress:
        outcome = await runner.run(suite_file, plan, run_settings, progress.on_result)
    if not json:
        print_summary(settings, outcome)
    return outcome


def _print_plan(settings: Settings, suite_file: SuiteFile, plan: Plan, model: str) -> None:
    total = len(plan.trials)
    notes = [plural(total, "trial"), f"of {plural(len(plan.created.cases), 'case')} with {model}"]
    if plan.is_resumed:
        notes.append(f"continues run {short_id(plan.created.run_id)}: {len(plan.done)} are done")
    if plan.reused:
        notes.append(f"{len(plan.reused)} are unchanged since an earlier run")
    cost = f"about {dollars(plan.estimate_usd)} ({plan.estimate_basis})"
    print_note(settings, f"{suite_file.suite.name}: {', '.join(notes)}; {cost}")


def print_summary(settings: Settings, run: EvalRun) -> None:
    screen = Screen(settings)
    outcomes = [item.outcome for item in run.results.values()]
    failed = [item for item in run.results.values() if item.outcome != "passed"]
    for item in failed:
        for line in failure_lines(item):
            screen.paragraph((line, "dim"), indent=2)
    style = "green" if not failed else "bold red"
    words = f"{outcomes.count('passed')} of {plural(len(outcomes), 'trial')} passed"
    more = f", {plural(outcomes.count('error'), 'error')}" if "error" in outcomes else ""
    screen.line(
        (run.created.suite, "bold"),
        (f"  {words}{more}", style),
        (f"  {dollars(run.cost_usd)}  run {short_id(run.id)}", "dim"),
    )
    if run.ended is not None and run.ended.status == "budget_reached":
        print_note(settings, "the budget was reached before all trials were run", "yellow")


def failure_lines(item: EvalCaseEnded) -> list[str]:
    """Why a trial did not pass."""
    name = f"{item.case_id} trial {item.trial}"
    lines = [f"{name}: {item.error}"] if item.error else []
    for grade in item.grades:
        lines += [
            f"{name}: {grade.grader}: not {check.name}: {check.detail}"
            for check in grade.checks
            if not check.passed
        ]
    return [*lines, f"{name}: mainspring log show {short_id(item.session_id)}"]


def all_passed(run: EvalRun) -> bool:
    is_complete = run.ended is not None and run.ended.status == "completed"
    return is_complete and all(item.outcome == "passed" for item in run.results.values())


def load_suites(folder: Path, names: list[str]) -> list[SuiteFile]:
    """
    Raises:
        InvalidInput: there is no such suite, or it has mistakes.
    """
    known = find_suites(folder)
    if not names:
        if not known:
            missing = InvalidInput(f"there are no suites in {folder / EVALS_FOLDER}")
            missing.fix = ("`mainspring eval init` writes a first one",)
            raise missing
        return [_read(file, folder) for file in known]
    return [_read(_find(name, known, folder), folder) for name in names]


def _find(name: str, known: list[Path], folder: Path) -> Path:
    for file in known:
        if name in (file.stem, file.name):
            return file
    given = folder / name
    if given.is_file():
        return given
    raise InvalidInput(
        f"there is no suite {name}; there are {', '.join(file.stem for file in known) or 'none'}"
    )


def _read(file: Path, folder: Path) -> SuiteFile:
    is_below = file.is_relative_to(folder)
    return read_suite(file, shown=str(file.relative_to(folder)) if is_below else str(file))


@command(app)
async def ls(settings: Settings, *, agent: AgentOption = None, json: JsonOption = False) -> int:
    """List suites and their last runs."""
    folder = Path(settings.folder, agent or ".")
    rows: list[dict[str, object]] = []
    async with open_suite_runner(settings, RunOptions(agent=folder)) as runner:
        for file in load_suites(folder, []):
            log, name = runner.runtime.log, runner.agent.name
            runs = await existing_runs(log, name, file.suite.name, newest=1)
            count = len(await list_runs(log, name, file.suite.name))
            rows.append(_suite_row(file, runs[0] if runs else None, count))
    return print_list(
        settings,
        rows,
        json=json,
        heads=["SUITE", "CASES", "RUNS", "LAST", "PASSED", "COST", "WHEN"],
        row=lambda row: [(str(value if value is not None else ""), "") for value in row.values()],
        empty="there are no suites",
    )


def _suite_row(file: SuiteFile, last: EvalRun | None, count: int) -> dict[str, object]:
    outcomes = [] if last is None else [item.outcome for item in last.results.values()]
    return {
        "suite": file.suite.name,
        "cases": len(file.suite.cases),
        "runs": count,
        "last": None if last is None else short_id(last.id),
        "passed": None if last is None else f"{outcomes.count('passed')}/{len(outcomes)}",
        "cost": None if last is None else dollars(last.cost_usd),
        "when": None if last is None else age_text(clock.now() - last.started),
    }


@command(app)
async def report(settings: Settings, *, run: RunArgument, json: JsonOption = False) -> int:
    """Show a run: every trial, its verdict and why."""
    async with open_existing_log(settings) as log:
        row = await find_session(log, run)
        outcome = await read_run(log, row.id)
    results = [outcome.results[key] for key in sorted(outcome.results)]
    print_list(
        settings,
        results,
        json=json,
        heads=RESULT_HEADS,
        row=result_row,
        empty="no trial has ended yet",
    )
    if not json:
        print_summary(settings, outcome)
    return 0
