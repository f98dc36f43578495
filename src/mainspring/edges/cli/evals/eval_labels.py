"""`mainspring eval label` and `calibrate`: people's verdicts, and how far judges agree with
them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals.eval_report import RunArgument
from mainspring.edges.cli.evals.eval_suites import load_suites
from mainspring.edges.cli.options import AgentFolderOption, JsonOption
from mainspring.edges.cli.render.printing import Screen, plural, print_note
from mainspring.edges.cli.run.approval_prompt import is_interactive
from mainspring.edges.cli.session_lookup import find_run, open_existing_log
from mainspring.improve.evals.quality.calibration import JudgeReport, calibrate_judges
from mainspring.improve.evals.quality.pair_calibration import PairReport
from mainspring.improve.evals.runs.run_log import read_run
from mainspring.improve.evals.scoring.judges import MIN_LABELS
from mainspring.improve.evals.scoring.labels import Label, add_label, read_labels, save_calibration
from mainspring.improve.evals.trajectory import read_trajectory
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner


async def label(
    settings: Settings,
    *,
    run: RunArgument,
    case: Annotated[
        str | None, typer.Option("--case", metavar="ID", help="Only this case.")
    ] = None,
    verdict: Annotated[
        bool | None,
        typer.Option("--pass/--fail", help="The verdict; do not ask for it."),
    ] = None,
    agent: AgentFolderOption = None,
) -> int:
    """Label the answers of a run as good or bad. Commit the labels, which are in evals/labels."""
    count = 0
    async with open_existing_log(settings) as log:
        outcome = await read_run(log, (await find_run(log, run, "eval")).id)
        suite_file = load_suites(Path(settings.folder, agent or "."), [outcome.created.suite])[0]
        cases = {item.id: item for item in suite_file.suite.cases}
        labelled = (
            {item.session_id for item in read_labels(suite_file)} if verdict is None else set[str]()
        )
        for item in outcome.sorted_results:
            is_selected = item.case_id in cases and case in (None, item.case_id)
            if not is_selected or item.session_id in labelled:
                continue
            answer = read_trajectory(await log.read(item.session_id)).answer
            is_good = verdict
            if is_good is None:
                is_good = await _ask(settings, cases[item.case_id].messages, answer)
            if is_good is None:
                break
            new_label = Label(
                case_id=item.case_id,
                session_id=item.session_id,
                answer=answer,
                passed=is_good,
                by=settings.user,
                time=clock.now(),
                model=outcome.created.model,
            )
            await to_thread.run_sync(add_label, suite_file, new_label)
            count += 1
    print_note(settings, f"{plural(count, 'label')} added to evals/labels")
    return 0


async def _ask(settings: Settings, messages: tuple[str, ...], answer: str) -> bool | None:
    """Returns `None` if the user quits."""
    if not is_interactive():
        raise InvalidInput("there is no terminal for questions; --pass or --fail gives one verdict")
    screen = Screen(settings)
    for message in messages:
        screen.paragraph(("user  ", "bold"), (message, ""))
    screen.paragraph(("agent ", "bold"), (answer, ""))
    verdicts = {"y": True, "n": False, "q": None}
    while True:
        reply = await to_thread.run_sync(input, "good? [y]es [n]o [q]uit ", abandon_on_cancel=True)
        if (key := reply.strip().lower()[:1]) in verdicts:
            return verdicts[key]


async def calibrate(
    settings: Settings,
    *,
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="The suite's name.")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="The model of judges that name none."),
    ] = None,
    agent: AgentFolderOption = None,
    json: JsonOption = False,
) -> int:
    """Measure the judges of a suite against labels. Asks them about labelled answers, and shows how
    well they agree."""
    folder = Path(settings.folder, agent or ".")
    suite_file = load_suites(folder, [suite])[0]
    async with open_suite_runner(settings, RunOptions(agent=folder, model=model)) as runner:
        await to_thread.run_sync(runner.open_scripts, suite_file)
        judges = runner.judges(suite_file)
        reports = await calibrate_judges(judges, suite_file, read_labels(suite_file))
    screen = Screen(settings)
    for report in reports:
        await to_thread.run_sync(save_calibration, suite_file, report.calibration)
        if json:
            screen.json(report)
        else:
            _print_report(screen, report)
    print_note(
        settings, f"stored in evals/labels/{suite_file.suite.name}.calibration.json; commit it"
    )
    return 0


def _print_report(screen: Screen, report: JudgeReport | PairReport) -> None:
    stats = report.agreement
    unit = "pair" if isinstance(report, PairReport) else "label"
    screen.line((report.grader, "bold"), (f"  {report.model}", "dim"))
    kappa = f"kappa {stats.kappa:.2f} ({stats.interval.low:.2f} to {stats.interval.high:.2f})"
    labels = f"{plural(stats.labels, unit)}, agrees on {stats.agreement:.0%}, {kappa}"
    is_calibrated = report.calibration.labels >= MIN_LABELS
    warning = "" if is_calibrated else f"; fewer than {MIN_LABELS} {unit}s: not calibrated"
    screen.line((f"  {labels}{warning}", "" if is_calibrated else "yellow"))
    for line in _pair_lines(report) if isinstance(report, PairReport) else _label_lines(report):
        screen.line((f"  {line}", ""))
    if report.malformed:
        screen.line((f"  no verdict on {plural(report.malformed, unit)}", "yellow"))


def _label_lines(report: JudgeReport) -> Iterator[str]:
    stats = report.agreement
    table = f"both pass {stats.both_pass}, both fail {stats.both_fail}, only the judge passes"
    yield f"{table} {stats.judge_only}, only people pass {stats.people_only}"
    if report.padding_flips is not None:
        yield f"a padded answer gets another verdict: {report.padding_flips:.0%}"
    if report.own_family is not None:
        yield f"answers of its own family: {report.own_family * 100:+.0f} points in their favor"


def _pair_lines(report: PairReport) -> Iterator[str]:
    yield f"ties {report.ties}, the order changes the verdict: {report.order_flips:.0%}"
    yield f"of two identical answers the first wins: {report.identical_first:.2f}"
    bias = report.calibration.length_bias
    yield f"a padded answer wins: {report.padding_wins:.2f} (length bias {bias:.2f} taken off)"
