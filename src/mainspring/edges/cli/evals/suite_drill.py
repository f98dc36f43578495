"""`mainspring models drill --suite`: a suite with the first model down."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from mainspring.config import Settings
from mainspring.edges.cli.evals.eval_progress import EvalProgress
from mainspring.edges.cli.evals.eval_report import print_gate, print_summary
from mainspring.edges.cli.evals.eval_suites import load_suites
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import dollars, plural, print_note
from mainspring.improve.evals.drill import Drill, DrillResult
from mainspring.improve.evals.runs.runner import RunSettings
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner


async def drill_suite(
    settings: Settings, names: str, suite: str, *, budget: Decimal | None, json: bool
) -> int:
    folder = Path(settings.folder)
    [suite_file] = load_suites(folder, [suite])
    options = RunOptions(agent=folder, model=names)
    async with open_suite_runner(settings, options, is_drill=True) as runner:
        drill = Drill(runner, suite_file, RunSettings(budget_usd=budget))
        plan = await drill.plan()
        if not json:
            first, cost = names.partition(",")[0], dollars(plan.estimate_usd)
            trials = plural(len(plan.trials), "trial")
            answers = f"{runner.agent.model} answers"
            print_note(settings, f"{first} is treated as down; {answers}: {trials}, about {cost}")
        with EvalProgress(settings, plan, is_json=json) as progress:
            result = await drill.run(plan, progress.on_result)
    if not json:
        _print_result(settings, result)
        print_gate(settings, suite_file, result.gate)
    return int(not result.gate.is_open)


def _print_result(settings: Settings, result: DrillResult) -> None:
    print_summary(settings, result.run)
    if result.normal is None:
        print_note(settings, "there is no run without the outage to compare with: all must pass")
    else:
        print_note(settings, f"compared with run {short_id(result.normal.id)}")
