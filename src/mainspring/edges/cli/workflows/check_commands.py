"""Commands that try workflows without running them: dry runs, tests, the schema for editors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from anyio import to_thread

from mainspring.config import DATABASE, Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Usage
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen
from mainspring.edges.cli.session_lookup import find_run, open_existing_log
from mainspring.edges.cli.workflows.opening import workflow_files
from mainspring.edges.cli.workflows.run_view import STYLES, dollars_text
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.runtime.session_context import Models
from mainspring.runtime.workflows.dry_run import (
    DryRun,
    DrySteps,
    WorkflowTest,
    dry_run,
    problems_of,
    recorded_test,
)
from mainspring.runtime.workflows.engine import RunRequest, read_run
from mainspring.runtime.workflows.format.workflow_schema import workflow_schema
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.step_runner import AgentStep
from mainspring.runtime.workflows.workflow_files import TESTS_FOLDER
from mainspring.wiring.providers import open_model_registry

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")  # only for tests

_CHARS_PER_TOKEN = 4  # of English text, for an estimate
_REPLY_TOKENS = 1_000
"""A guess at the length of a reply, for estimates."""


async def print_dry_run(
    settings: Settings, request: RunRequest, recorded: str | None, model: str | None, *, json: bool
) -> int:
    """Run a workflow over made up or recorded outputs, and print what would happen."""
    test = WorkflowTest(workflow=request.files.main)
    if recorded is not None:
        test = await to_thread.run_sync(_read_test, Path(settings.folder, recorded))
    async with open_model_registry(settings) as models, scratch_log() as log:
        steps = DrySteps(
            files=request.files,
            outputs=test.outputs,
            price=lambda step: _price(models, step, model or settings.model),
        )
        run = await dry_run(log, request, steps, gates=test.gates)
    _print_run(Screen(settings), run, json=json)
    return 0 if run.status == "completed" else 1


async def run_tests(
    settings: Settings,
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Tests. [default: workflows/tests/*.yaml]"),
    ] = None,
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="RUN", help="Print a test with the outputs of a run."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run tests of workflows: real order, conditions, loops and gates over recorded outputs. Exit
    status 1 if one fails."""
    screen = Screen(settings)
    if record is not None:
        async with open_existing_log(settings) as log:
            row = await find_run(log, record, "workflow")
            recorded = recorded_test(await read_run(log, row.id))
        screen.text(yaml.safe_dump(msgspec.to_builtins(recorded), sort_keys=False))
        return 0
    folder = Path(settings.folder)
    paths = [folder / name for name in names or ()] or sorted(
        (folder / TESTS_FOLDER).glob("*.y*ml")
    )
    if not paths:
        raise InvalidInput(f"there are no tests in {TESTS_FOLDER}/; `--record RUN` prints one")
    is_passed = True
    for path in paths:
        problems = await _run_test(settings, await to_thread.run_sync(_read_test, path))
        is_passed = is_passed and not problems
        if json:
            screen.json({"test": path.stem, "passed": not problems, "problems": problems})
            continue
        mark, style = ("✗", "bold red") if problems else ("✓", "green")
        screen.line((f"{mark} ", style), (path.stem, "bold"))
        for problem in problems:
            screen.paragraph((f"  {problem}", "red"))
    return 0 if is_passed else 1


async def schema(settings: Settings) -> int:
    """Print the JSON Schema of workflow files, for editors."""
    Screen(settings).json(workflow_schema())
    return 0


async def _run_test(settings: Settings, test: WorkflowTest) -> list[str]:
    try:
        files = await to_thread.run_sync(_collect, settings, test.workflow)
        request = RunRequest(files=files, arguments=test.arguments, inputs=test.inputs)
        async with scratch_log() as log:
            run = await dry_run(
                log, request, DrySteps(files=files, outputs=test.outputs), gates=test.gates
            )
    except InvalidInput as error:
        return [str(error)]
    return problems_of(test, run)


def _collect(settings: Settings, name: str) -> RunFiles:
    files = workflow_files(settings)
    return files.collect(files.find(name))


@asynccontextmanager
async def scratch_log() -> AsyncGenerator[SessionLog, None]:
    """A log that is thrown away."""
    with TemporaryDirectory(prefix="mainspring-dry-run-") as folder:
        async with open_sqlite(Path(folder, DATABASE)) as store:
            yield SessionLog(store)


def _read_test(path: Path) -> WorkflowTest:
    """Raises: InvalidInput. Blocks."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_bytes()), WorkflowTest)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise InvalidInput(f"{path}: {error}") from error


def _price(models: Models, step: AgentStep, model: str | None) -> Decimal:
    wanted = step.node.model or step.workflow.model
    if model is None and wanted is None:
        return Decimal(0)
    base = models.resolve(model or wanted or "")
    name = base if wanted is None else models.related(wanted, base)
    prompt = len(step.prompt) + len(step.system_prompt or "")
    usage = Usage(input_tokens=prompt // _CHARS_PER_TOKEN, output_tokens=_REPLY_TOKENS)
    return models.cost(name, usage)


def _print_run(screen: Screen, run: DryRun, *, json: bool) -> None:
    if json:
        screen.json(run)
        return
    for step in run.steps:
        mark, style = STYLES.get(step.status, ("·", ""))
        gate = "" if step.decision is None else f"  waits; here: {step.decision}"
        dollars = dollars_text(step.estimated_usd or "0")
        cost = f"  ~{dollars}" if dollars else ""
        reason = "" if step.reason is None else f"  {step.reason}"
        screen.line(
            (f"{mark} ", style), (step.node, ""), (f"  {step.kind}{gate}{cost}{reason}", "dim")
        )
    total = f"  about ${run.estimated_usd} for the first requests of its agents"
    mark, style = STYLES.get(run.status, ("·", ""))
    screen.line((f"{mark} ", style), (run.workflow, "bold"), (f"  {run.status}{total}", "dim"))
    if run.error:
        screen.paragraph((run.error, "red"))
