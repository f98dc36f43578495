"""`mainspring eval ls`, `report` and `compare`, and the summary of a run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, TypeAlias

import typer
from anyio import to_thread

from mainspring import __version__
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.envelope import event_types, message_text
from mainspring.core.errors import SessionNotFound
from mainspring.core.events import EvalCaseEnded, UserMessage
from mainspring.edges.cli.evals.eval_grade import print_score
from mainspring.edges.cli.evals.eval_progress import RESULT_HEADS, result_row
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    age_text,
    dollars,
    plural,
    print_list,
    print_note,
)
from mainspring.edges.cli.session_lookup import find_run, open_existing_log
from mainspring.files.atomic_file import write_atomic
from mainspring.harness.context.xray import cached_share
from mainspring.improve.evals.exchange.inspect_log import inspect_log
from mainspring.improve.evals.gate.comparison import (
    ResultSummary,
    case_results,
    summarize,
)
from mainspring.improve.evals.gate.comparison import (
    compare as compare_results,
)
from mainspring.improve.evals.gate.decision import GateResult
from mainspring.improve.evals.production_score import production_score
from mainspring.improve.evals.ready.safety_dimensions import dimension_results
from mainspring.improve.evals.reports.html_report import html_page
from mainspring.improve.evals.reports.report_files import failures_of, junit, markdown, share_text
from mainspring.improve.evals.runs.run_log import EvalRun, existing_runs, list_runs, read_run
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.topologies import TopologyResult, advice
from mainspring.improve.evals.trajectory import TrajectoryLog, read_trajectory
from mainspring.log.session_log import SessionLog

RunArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, a unique part of it, or `last`.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """The files to write reports to."""

    junit: Annotated[
        str | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")
    ] = None
    markdown: Annotated[
        str | None,
        typer.Option("--markdown", metavar="FILE", help="Write Markdown for a pull request."),
    ] = None
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write one HTML page.")
    ] = None
    inspect: Annotated[
        str | None, typer.Option("--inspect", metavar="FILE", help="Write an EvalLog of Inspect.")
    ] = None


async def write_reports(
    settings: Settings,
    log: SessionLog,
    run: EvalRun,
    files: ReportFiles,
    *,
    result: GateResult | None = None,
    before: EvalRun | None = None,
) -> None:
    """Raises: InvalidInput: a file cannot be written."""
    trajectories: dict[str, TrajectoryLog] = {}
    if files.inspect is not None or files.html is not None:
        earlier = () if before is None else before.results.values()
        trajectories = await _trajectories(log, (*run.results.values(), *earlier))
    texts = {session_id: item.answer for session_id, item in trajectories.items()}
    logs = {session_id: item.lines for session_id, item in trajectories.items()}
    questions = await _questions(log, run) if files.inspect is not None else {}
    contents = {
        files.junit: lambda: junit(run),
        files.markdown: lambda: markdown(run, result),
        files.html: lambda: html_page(run, before, logs, __version__, gate=result),
        files.inspect: lambda: inspect_log(run, questions, texts).decode(),
    }
    for name, content in contents.items():
        if name is not None:
            path = Path(settings.folder, name)
            await to_thread.run_sync(write_atomic, path, content().encode())
            print_note(settings, f"wrote {name}")


async def _questions(log: SessionLog, run: EvalRun) -> dict[str, str]:
    """The user's messages of each case."""
    types = event_types(UserMessage)
    questions: dict[str, str] = {}
    for item in run.results.values():
        with suppress(SessionNotFound):
            messages = await log.read(item.session_id, types=types)
            questions[item.case_id] = "\n\n".join(message_text(event.payload) for event in messages)
    return questions


async def _trajectories(
    log: SessionLog, results: Iterable[EvalCaseEnded]
) -> dict[str, TrajectoryLog]:
    trajectories: dict[str, TrajectoryLog] = {}
    for session_id in {item.session_id for item in results}:
        with suppress(SessionNotFound):
            trajectories[session_id] = read_trajectory(await log.read(session_id))
    return trajectories


def print_summary(settings: Settings, run: EvalRun) -> None:
    screen = Screen(settings)
    results = run.sorted_results
    for item in results:
        if item.outcome != "passed":
            name = f"{item.case_id} trial {item.trial}"
            for line in (*failures_of(item), f"mainspring log show {short_id(item.session_id)}"):
                screen.paragraph((f"{name}: {line}", "dim"), indent=2)
    summary = summarize(case_results(results))
    passes = sum(item.outcome == "passed" for item in results)
    errors = sum(item.outcome == "error" for item in results)
    without = f", {errors} without a verdict" if errors else ""
    style = "green" if passes == len(results) else "bold red"
    k = summary.trials
    several = (
        f"  pass@{k} {share_text(summary.pass_at)}  pass^{k} {share_text(summary.pass_all)}"
        if k > 1
        else ""
    )
    screen.paragraph(
        (run.created.suite, "bold"),
        (f"  {passes} of {plural(len(results), 'trial')} passed{without}", style),
        (f"  {summary.pass_rate:.1%} of cases (95% confidence: {summary.interval}){several}", ""),
        (f"  {dollars(run.cost_usd)}  run {short_id(run.id)}", "dim"),
    )
    _print_dimensions(screen, summary)
    if summary.flaky:
        print_note(settings, f"flaky: {', '.join(summary.flaky)}", "yellow")
    if run.ended is not None and run.ended.status == "budget_reached":
        print_note(settings, "the budget was reached before all trials were run", "yellow")


def _print_dimensions(screen: Screen, summary: ResultSummary) -> None:
    """For the safety suite: pass rates next to those that an audit measured for another agent."""
    rows = [
        (
            (result.dimension, ""),
            (str(result.cases), ""),
            (f"{result.pass_rate:.1%}", ""),
            ("" if result.openclaw is None else f"{result.openclaw:.1%}", "dim"),
        )
        for result in dimension_results(summary)
    ]
    if rows:
        screen.table(["DIMENSION", "CASES", "PASSED", "OPENCLAW (2602.14364)"], rows)


def print_gate(settings: Settings, suite_file: SuiteFile, result: GateResult) -> None:
    screen = Screen(settings)
    for note in result.notes:
        screen.paragraph((note, "dim"), indent=2)
    for reason in result.reasons:
        screen.paragraph((reason, "bold red"), indent=2)
    words, style = ("gate open", "bold green") if result.is_open else ("gate closed", "bold red")
    screen.line((suite_file.suite.name, "bold"), (f"  {words}", style))
    if result.comparison is None:
        print_note(settings, "there is no baseline; --save-baseline writes one; commit it")


def print_models(settings: Settings, runs: list[EvalRun], *, json: bool) -> int:
    """Compare models on the same suite."""
    rows = [_model_row(run) for run in runs]
    return print_list(
        settings,
        rows,
        json=json,
        heads=["SUITE", "MODEL", "CASES", "95 %", "CALLS OK", "COST", "P50", "CACHED"],
        row=lambda row: [(str(value), "") for value in row.values()],
        empty="nothing was run",
    )


def _model_row(run: EvalRun) -> dict[str, object]:
    items = list(run.results.values())
    summary = summarize(case_results(items))
    calls = sum(item.tool_calls for item in items)
    failed = sum(item.failed_calls for item in items)
    cached = [share for item in items if (share := cached_share(item.usage)) is not None]
    return {
        "suite": run.created.suite,
        "model": run.created.model,
        "cases": f"{summary.pass_rate:.1%}",
        "interval": str(summary.interval),
        "calls_ok": f"{1 - failed / calls:.1%}" if calls else "",
        "cost": dollars(run.cost_usd),
        "p50": f"{median(item.seconds for item in items):.1f} s" if items else "",
        "cached": f"{fmean(cached):.0%}" if cached else "",
    }


def print_topologies(settings: Settings, results: list[TopologyResult], *, json: bool) -> None:
    """Compare topologies of the same agent, and print whether several agents are worth it."""
    rows = [_topology_row(result) for result in results]
    print_list(
        settings,
        rows,
        json=json,
        heads=["TOPOLOGY", "CASES", "95 %", "COST", "P50", "SUBAGENTS", "POINTS", "VERDICT"],
        row=lambda row: [(str(value), "") for value in row.values()],
        empty="nothing was run",
    )
    if not json:
        for line in advice(results):
            Screen(settings).paragraph((line, "bold"))


def _topology_row(result: TopologyResult) -> dict[str, object]:
    compared = result.comparison
    return {
        "topology": result.topology,
        "cases": f"{result.summary.pass_rate:.1%}",
        "interval": str(result.summary.interval),
        "cost": dollars(result.cost_usd),
        "p50": f"{result.seconds:.1f} s",
        "subagents": f"{result.subagents:.1f}",
        "points": "" if compared is None else f"{compared.test.difference * 100:+.1f}",
        "verdict": "" if compared is None else compared.verdict,
    }


async def print_suites(
    settings: Settings, runner: SuiteRunner, files: list[SuiteFile], *, json: bool
) -> int:
    rows: list[dict[str, object]] = []
    for file in files:
        log, name = runner.runtime.log, runner.agent.name
        runs = await existing_runs(log, name, file.suite.name, newest=1)
        count = len(await list_runs(log, name, file.suite.name))
        rows.append(_suite_row(file, runs[0] if runs else None, count))
    return print_list(
        settings,
        rows,
        json=json,
        heads=["SUITE", "CASES", "RUNS", "LAST", "PASSED", "COST", "WHEN"],
        row=lambda row: [("" if value is None else str(value), "") for value in row.values()],
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


async def report(
    settings: Settings, *, run: RunArgument, files: ReportFiles, json: JsonOption = False
) -> int:
    """Show every trial of a run with its verdict and the reason."""
    async with open_existing_log(settings) as log:
        outcome = await read_run(log, (await find_run(log, run, "eval")).id)
        await write_reports(settings, log, outcome, files)
        score = await production_score(log, outcome.created.agent_name, outcome.created.suite)
    print_list(
        settings,
        outcome.sorted_results,
        json=json,
        heads=RESULT_HEADS,
        row=result_row,
        empty="no trial has ended yet",
    )
    if not json:
        print_summary(settings, outcome)
        print_score(settings, score)
    return 0


async def compare(
    settings: Settings,
    *,
    before: RunArgument,
    after: RunArgument,
    files: ReportFiles,
    json: JsonOption = False,
) -> int:
    """Compare two runs, case by case. Exit status 1 if the second one is worse."""
    async with open_existing_log(settings) as log:
        first = await read_run(log, (await find_run(log, before, "eval")).id)
        second = await read_run(log, (await find_run(log, after, "eval")).id)
        await write_reports(settings, log, second, files, before=first)
    compared = compare_results(
        case_results(first.results.values()), case_results(second.results.values())
    )
    screen = Screen(settings)
    if json:
        screen.json(compared)
        return int(compared.verdict == "worse")
    style = {"better": "green", "worse": "bold red"}.get(compared.verdict, "")
    screen.paragraph((compared.text, style))
    for label, names in (
        ("regressed", compared.regressed),
        ("improved", compared.improved),
        ("only in the first", compared.removed),
        ("only in the second", compared.added),
    ):
        if names:
            screen.paragraph((f"{label}: {', '.join(names)}", ""), indent=2)
    rows: list[list[StyledText]] = [
        [
            (tag, ""),
            (str(test.cases), ""),
            (f"{test.difference * 100:+.1f}", ""),
            (f"{test.p_worse:.3f}", ""),
        ]
        for tag, test in compared.tags.items()
    ]
    if rows:
        screen.table(["TAG", "CASES", "POINTS", "P(WORSE)"], rows)
    return int(compared.verdict == "worse")
