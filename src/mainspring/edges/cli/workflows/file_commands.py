"""Commands about workflow files: list, check, draw, trust, write."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen, print_list, print_result
from mainspring.edges.cli.session_lookup import open_existing_log
from mainspring.edges.cli.workflows import check_commands, run_commands
from mainspring.edges.cli.workflows.opening import show_before_trust, workflow_files
from mainspring.edges.cli.workflows.run_view import STYLES
from mainspring.files.atomic_file import write_atomic
from mainspring.runtime.workflows.engine import all_runs
from mainspring.runtime.workflows.format.new_workflow import new_workflow
from mainspring.runtime.workflows.format.workflow_graph import mermaid, svg, text_graph
from mainspring.runtime.workflows.run_view import gate_node, open_gates
from mainspring.runtime.workflows.validation import WorkflowReport, check_workflow
from mainspring.runtime.workflows.workflow_files import WorkflowFile, WorkflowFiles

app = command_group()
for action in (
    run_commands.run,
    run_commands.show,
    run_commands.resume,
    run_commands.pause,
    run_commands.cancel,
    run_commands.retry,
    run_commands.skip,
    run_commands.respond,
    run_commands.fork,
    run_commands.logs,
    check_commands.schema,
):
    command(app)(action)


command(app, "test")(check_commands.run_tests)


class WorkflowView(Struct, frozen=True, kw_only=True):
    name: str
    scope: str
    trust: str
    nodes: int
    file: str
    description: str


class WorkflowRunLine(Struct, frozen=True, kw_only=True):
    id: str
    workflow: str
    status: str
    created_at: datetime
    cost_usd: str
    waiting: tuple[str, ...]


@command(app)
async def ls(
    settings: Settings,
    *,
    runs: Annotated[bool, typer.Option("--runs", help="List runs, newest first.")] = False,
    json: JsonOption = False,
) -> int:
    """List the workflows of this folder and of your home with their trust, or runs."""
    if runs:
        return await _list_runs(settings, json=json)
    files = workflow_files(settings)
    views = await to_thread.run_sync(lambda: [_view(files, item) for item in files.all()])
    print_list(
        settings,
        views,
        json=json,
        heads=["NAME", "SCOPE", "TRUST", "NODES", "FILE", "DESCRIPTION"],
        row=lambda view: [
            (view.name, "bold"),
            (view.scope, ""),
            (view.trust, "green" if view.trust in ("trusted", "user") else "yellow"),
            (str(view.nodes), ""),
            (view.file, "dim"),
            (view.description.strip().partition("\n")[0][:80], "dim"),
        ],
        empty="there are no workflows here; `mainspring workflow new NAME` writes one",
    )
    return 0


async def _list_runs(settings: Settings, *, json: bool) -> int:
    async with open_existing_log(settings) as log:
        views = [
            WorkflowRunLine(
                id=run_id,
                workflow=run.created.name,
                status=run.status,
                created_at=run.created_at,
                cost_usd=str(run.cost_usd),
                waiting=tuple(gate_node(item, run_id) for item in open_gates(run, run_id)),
            )
            async for run_id, run in all_runs(log)
        ]
    print_list(
        settings,
        views,
        json=json,
        heads=["RUN", "WORKFLOW", "STATUS", "COST", "WAITS FOR"],
        row=lambda view: [
            (view.id, ""),
            (view.workflow, "bold"),
            (view.status, STYLES.get(view.status, ("", ""))[1]),
            (f"${view.cost_usd}", ""),
            (", ".join(view.waiting), "yellow"),
        ],
        empty="no workflow has run yet",
    )
    return 0


def _view(files: WorkflowFiles, item: WorkflowFile) -> WorkflowView:
    workflow = item.read.workflow
    trust = "invalid"
    if workflow is not None:
        try:
            trust = files.trust(item, files.collect(item))
        except InvalidInput:
            trust = "incomplete"
    return WorkflowView(
        name=item.name,
        scope=item.scope,
        trust=trust,
        nodes=0 if workflow is None else len(workflow.nodes),
        file=item.read.file,
        description="" if workflow is None else workflow.description,
    )


@command(app)
async def validate(
    settings: Settings,
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKFLOW]...", help="Names or files. [default: all]"),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Check workflows without running anything: cycles, missing nodes and files, unknown keys,
    conditions. Exit status 1 if one is not valid."""
    files = workflow_files(settings)
    reports = await to_thread.run_sync(_reports, files, names or [])
    screen = Screen(settings)
    for report in reports:
        if json:
            screen.json(report)
        else:
            _print_report(screen, report)
    if not reports and not json:
        screen.line(("there are no workflows here", "dim"))
    return 0 if all(report.valid for report in reports) else 1


def _reports(files: WorkflowFiles, names: list[str]) -> list[WorkflowReport]:
    if not names:
        return [check_workflow(files, item) for item in files.all()]
    return [check_workflow(files, files.any(name)) for name in names]


def _print_report(screen: Screen, report: WorkflowReport) -> None:
    mark, style = ("✓", "green") if report.valid else ("✗", "bold red")
    layers = len(report.execution_layers)
    screen.line(
        (f"{mark} ", style),
        (report.name, "bold"),
        (f"  {report.node_count} nodes in {layers} layers  {report.file}", "dim"),
    )
    for issue in report.issues:
        place = report.file if issue.line is None else f"{report.file}:{issue.line}"
        color = {"error": "red", "warning": "yellow"}.get(issue.level, "dim")
        screen.paragraph((f"  {issue.level} ", color), (f"{place}: {issue.message}", ""))


@command(app)
async def graph(
    settings: Settings,
    *,
    name: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A name or a file.")],
    form: Annotated[
        str, typer.Option("--format", metavar="text|mermaid|svg", help="How to draw it.")
    ] = "text",
) -> int:
    """Draw a workflow: as text, as a Mermaid diagram, or as SVG."""
    files = workflow_files(settings)
    workflow = (await to_thread.run_sync(files.find, name)).read.workflow
    drawings = {"text": text_graph, "mermaid": mermaid, "svg": svg}
    if form not in drawings or workflow is None:
        raise typer.BadParameter(f"{form} is not text, mermaid or svg")
    Screen(settings).text(drawings[form](workflow))
    return 0


@command(app)
async def trust(
    settings: Settings,
    *,
    name: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A name or a file.")],
    json: JsonOption = False,
) -> int:
    """Trust a workflow with its commands and scripts, exactly as they are now."""
    files = workflow_files(settings)
    workflow = await to_thread.run_sync(files.find, name)
    collected = await to_thread.run_sync(files.collect, workflow)
    if not json:
        show_before_trust(settings, collected)
    await to_thread.run_sync(files.pin, workflow, collected, clock.now())
    view = {"trusted": workflow.name, "hash": collected.hash}
    return print_result(settings, view, (f"trusted {workflow.name}", "green"), json=json)


@command(app)
async def new(
    settings: Settings,
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lowercase letters, digits, single hyphens.")
    ],
    json: JsonOption = False,
) -> int:
    """Write a small workflow to start from: change, check, approve, summarize."""
    path = Path(settings.folder, "workflows", f"{name}.yaml")
    text = new_workflow(name)
    if await to_thread.run_sync(path.exists):
        raise InvalidInput(f"{path} exists")
    await to_thread.run_sync(write_atomic, path, text.encode())
    files = workflow_files(settings)
    workflow = await to_thread.run_sync(files.find, name)
    collected = await to_thread.run_sync(files.collect, workflow)
    await to_thread.run_sync(files.pin, workflow, collected, clock.now())
    view = {"created": name, "file": str(path)}
    text_line = f"created {path}; run it: mainspring workflow run {name}"
    return print_result(settings, view, (text_line, ""), json=json)
