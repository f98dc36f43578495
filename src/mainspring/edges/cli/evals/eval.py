"""`mainspring eval`: write suites, run them, and check whether they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.evals.eval_exchange import benchmark, export, import_
from mainspring.edges.cli.evals.eval_grade import grade
from mainspring.edges.cli.evals.eval_health import health, reward
from mainspring.edges.cli.evals.eval_labels import calibrate, label
from mainspring.edges.cli.evals.eval_progress import EvalProgress
from mainspring.edges.cli.evals.eval_report import (
    ReportFiles,
    compare,
    print_gate,
    print_models,
    print_suites,
    print_summary,
    print_topologies,
    report,
    write_reports,
)
from mainspring.edges.cli.evals.eval_suites import SuitesArgument, load_suites
from mainspring.edges.cli.evals.eval_trend import show_trend
from mainspring.edges.cli.options import (
    AgentFolderOption,
    JsonOption,
    SessionArgument,
    parse_dollars,
)
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import Screen, dollars, plural, print_note
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.files.atomic_file import write_atomic
from mainspring.improve.evals.gate.baseline import baseline_of, encode_baseline, read_baseline
from mainspring.improve.evals.gate.decision import (
    GateResult,
    baseline_check,
    gate,
    plan_notes,
)
from mainspring.improve.evals.ready.suites import ready_suite_file
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.runs.runner import RunPlan, RunSettings, SuiteRunner
from mainspring.improve.evals.scoring.labels import add_label, feedback_label
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suites.case_recording import add_case
from mainspring.improve.evals.suites.new_suite import copy_ready_suite, write_first_suite
from mainspring.improve.evals.suites.suite_files import EVALS_FOLDER
from mainspring.improve.evals.topologies import (
    Topology,
    parse_topologies,
    topology_results,
    with_topology,
)
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner

app = command_group()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionArguments:
    case: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="ID", help="Only this case. Can be repeated."),
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Only cases with this tag. Can be repeated."),
    ] = None
    tier: Annotated[
        Literal["fast", "full"] | None,
        typer.Option(help="`fast` skips the cases of the tier `full`."),
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
            tier=self.tier,
            only_failed=self.failed,
            trials=self.trials,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningArguments:
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAMES",
            help="A model to use instead of the agent's; several are compared.",
        ),
    ] = None
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="NAMES",
            help="Compare the agent as `single`, `vote`, `peers` and `manager`.",
        ),
    ] = None
    budget: Annotated[
        Decimal | None,
        typer.Option(
            "--budget", parser=parse_dollars, metavar="USD", help="The cost limit of the run."
        ),
    ] = None
    parallel: Annotated[
        int | None, typer.Option(min=1, max=256, metavar="N", help="How many trials run at once.")
    ] = None
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run unchanged cases again; start a new run.")
    ] = False
    keep: Annotated[
        bool, typer.Option("--keep", help="Also keep the workspaces of passed trials.")
    ] = False

    offline: Annotated[
        Literal["tools", "all"] | None,
        typer.Option(
            help="Replay recorded cases without running tools; with `all`, without the model too."
        ),
    ] = None
    gate: Annotated[
        bool,
        typer.Option(
            "--gate", help="Compare with the baseline; exit with status 1 if the gate is closed."
        ),
    ] = False
    save_baseline: Annotated[
        bool,
        typer.Option("--save-baseline", help="Save the results as the baseline, a file to commit."),
    ] = False

    def models(self) -> list[str | None]:
        """The models to run the suites with, one after the other; they are not fallbacks."""
        return [name.strip() for name in self.model.split(",")] if self.model else [None]

    def topologies(self) -> list[Topology]:
        """Raises: InvalidInput: there is no such topology, or it is combined with a gate."""
        if self.topology is None:
            return []
        if self.gate or self.save_baseline:
            raise InvalidInput("--gate and --save-baseline are for the agent as it is")
        return parse_topologies(self.topology)

    def run_settings(self) -> RunSettings:
        return RunSettings(
            budget_usd=self.budget,
            parallel=self.parallel,
            fresh=self.fresh,
            keeps_workspaces=self.keep,
            offline=self.offline,
        )


@command(app)
async def init(
    settings: Settings,
    *,
    ready: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Ready-made suites: safety, tool-use, context-use, consistency, privacy, coding.",
        ),
    ] = None,
    agent: AgentFolderOption = None,
) -> int:
    """Write a first suite into the agent's folder. Names write ready-made suites instead."""
    folder = Path(settings.folder, agent or ".")
    suites = [ready_suite_file(name) for name in ready or ()]
    files = [copy_ready_suite(folder, suite) for suite in suites] or [write_first_suite(folder)]
    screen = Screen(settings)
    for file in files:
        screen.line(("wrote ", ""), (str(file.relative_to(folder)), "bold"))
    print_note(settings, "change its cases, then: mainspring eval run")
    return 0


@command(app)
async def add(
    settings: Settings,
    *,
    session: SessionArgument,
    suite: Annotated[str, typer.Option("--suite", metavar="NAME")] = "sessions",
    name: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="[default: the end of the session's]")
    ] = None,
    agent: AgentFolderOption = None,
) -> int:
    """Add a session to a suite as a case, with its recording."""
    folder = Path(settings.folder, agent or ".")
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        events = await log.read(row.id)
    case_id = name or f"session-{row.id[-8:]}"
    file = await to_thread.run_sync(add_case, folder, suite, case_id, row.id, events)
    if (rating := feedback_label(case_id, row.id, events)) is not None:
        await to_thread.run_sync(add_label, load_suites(folder, [suite])[0], rating)
        verdict = "good" if rating.passed else "bad"
        print_note(settings, f"{rating.by} rated it {verdict}: a label in {EVALS_FOLDER}/labels")
    Screen(settings).line(
        ("added ", ""), (case_id, "bold"), (f" to {EVALS_FOLDER}/{file.name}", "")
    )
    print_note(settings, f"give it graders; offline: mainspring eval run {suite} --offline all")
    return 0


@command(app)
async def run(  # parameters: groups of options
    settings: Settings,
    *,
    suites: SuitesArgument = None,
    agent: AgentFolderOption = None,
    cases: SelectionArguments,
    running: RunningArguments,
    files: ReportFiles,
    json: JsonOption = False,
) -> int:
    """Run suites as real sessions and grade them. Exit status 1 if a trial does not pass, or with
    --gate if the gate is closed. A run that was killed continues; unchanged cases are not run
    again."""
    folder = Path(settings.folder, agent or ".")
    suite_files = load_suites(folder, suites or [])
    topologies = running.topologies()
    runs: list[EvalRun] = []
    status = 0
    for model in running.models():
        async with open_suite_runner(settings, RunOptions(agent=folder, model=model)) as runner:
            for suite_file in suite_files:
                suite_run = _SuiteRun(settings, runner, suite_file, running, json)
                if topologies:
                    result = await suite_run.run_topologies(topologies, cases.selection())
                    status = max(status, result)
                    continue
                outcome = await suite_run.run(cases.selection())
                status = max(status, await suite_run.finish(outcome, files))
                runs.append(outcome)
    if len(running.models()) > 1 and runs:
        print_models(settings, runs, json=json)
    return status


@dataclass(frozen=True, slots=True)
class _SuiteRun:
    settings: Settings
    runner: SuiteRunner
    suite_file: SuiteFile
    arguments: RunningArguments
    is_json: bool

    async def run_topologies(self, topologies: list[Topology], selection: Selection) -> int:
        """Run the suite once with each topology, and print one table. Returns the exit status."""
        runs: list[tuple[Topology, EvalRun]] = []
        for topology in topologies:
            agent = with_topology(self.runner.agent, topology)
            suite_run = replace(self, runner=replace(self.runner, agent=agent))
            runs.append((topology, await suite_run.run(selection, listed_as=f" ({topology})")))
        results = await topology_results(self.runner.runtime.log, runs)
        print_topologies(self.settings, results, json=self.is_json)
        return int(not all(_all_passed(run) for _, run in runs))

    async def run(self, selection: Selection, *, listed_as: str = "") -> EvalRun:
        run_settings = replace(self.arguments.run_settings(), listed_as=listed_as)
        plan = await self.runner.plan(self.suite_file, selection, run_settings)
        if not self.is_json:
            _print_plan(self.settings, self.suite_file, plan, self.runner.agent.model)
        with EvalProgress(self.settings, plan, is_json=self.is_json) as progress:
            outcome = await self.runner.run(self.suite_file, plan, run_settings, progress.on_result)
        if not self.is_json:
            print_summary(self.settings, outcome)
        return outcome

    async def finish(self, outcome: EvalRun, files: ReportFiles) -> int:
        """Apply the gate, save the baseline and write reports. Returns the exit status."""
        baseline = read_baseline(self.suite_file.baseline)
        result = gate(self.suite_file.suite, outcome, baseline) if self.arguments.gate else None
        log = self.runner.runtime.log
        await write_reports(self.settings, log, outcome, files, result=result)
        if result is not None:
            print_gate(self.settings, self.suite_file, result)
        if self.arguments.save_baseline:
            check = result or baseline_check(self.suite_file.suite, outcome, baseline)
            return await self._save_baseline(outcome, check)
        if result is not None:
            return int(not result.is_open)
        return int(not _all_passed(outcome))

    async def _save_baseline(self, outcome: EvalRun, check: GateResult) -> int:
        """Save the run as the baseline, unless it is red. Returns the exit status."""
        name = f"{EVALS_FOLDER}/baselines/{self.suite_file.baseline.name}"
        if not check.is_open:
            reasons = "; ".join(check.reasons)
            print_note(self.settings, f"{name} was not written: {reasons}", "bold red")
            if check.comparison is not None:
                print_note(self.settings, f"if this is intended, delete {name} first")
            return 1
        baseline = baseline_of(outcome)
        plan = plan_notes(self.suite_file.suite, baseline.cases)
        if not self.arguments.gate:  # else they were printed with the gate
            for line in (note for note in check.notes if note not in plan):
                print_note(self.settings, line)
        content = encode_baseline(baseline)
        await to_thread.run_sync(write_atomic, self.suite_file.baseline, content)
        print_note(self.settings, f"wrote {name}; add it to git")
        for line in plan:
            print_note(self.settings, line)
        return 0


def _print_plan(settings: Settings, suite_file: SuiteFile, plan: RunPlan, model: str) -> None:
    total = len(plan.trials)
    notes = [f"{plural(total, 'trial')} of {plural(len(plan.created.cases), 'case')} with {model}"]
    if plan.is_resumed:
        notes.append(f"continues run {short_id(plan.created.run_id)}: {len(plan.done)} are done")
    if plan.reused:
        notes.append(f"{len(plan.reused)} are unchanged since an earlier run")
    cost = f"about {dollars(plan.estimate_usd)} ({plan.estimate_basis})"
    print_note(settings, f"{suite_file.suite.name}: {', '.join(notes)}; {cost}")


def _all_passed(run: EvalRun) -> bool:
    is_complete = run.ended is not None and run.ended.status == "completed"
    return is_complete and all(item.outcome == "passed" for item in run.results.values())


@command(app)
async def ls(
    settings: Settings, *, agent: AgentFolderOption = None, json: JsonOption = False
) -> int:
    """List suites and their last runs."""
    folder = Path(settings.folder, agent or ".")
    files = load_suites(folder, [])
    async with open_suite_runner(settings, RunOptions(agent=folder)) as runner:
        return await print_suites(settings, runner, files, json=json)


command(app)(report)
command(app)(compare)
command(app, "import")(import_)
command(app)(export)
command(app)(benchmark)
command(app)(label)
command(app)(calibrate)
command(app)(health)
command(app, "trend")(show_trend)
command(app)(grade)
app.add_typer(reward, name="reward", help="Check the rewards of a suite.")
