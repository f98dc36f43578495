"""Commands that start and steer runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mainspring.config import Settings
from mainspring.core.envelope import Event, encode_line
from mainspring.core.errors import LeaseHeld
from mainspring.core.events.workflow import NodeAction
from mainspring.core.sender import local_user
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen, print_note, print_result
from mainspring.edges.cli.run.run_arguments import ModeChoice, parse_limit
from mainspring.edges.cli.session_lookup import find_run, open_existing_log
from mainspring.edges.cli.workflows.check_commands import print_dry_run
from mainspring.edges.cli.workflows.opening import (
    collect_files,
    find_trusted,
    open_workflows_here,
    parse_inputs,
    require_few_runs,
    workflow_files,
)
from mainspring.edges.cli.workflows.run_view import live_printer, print_run
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.workflows.engine import (
    RunRequest,
    fork_run,
    read_run,
    start_run,
)
from mainspring.runtime.workflows.project_workflows import ProjectWorkflows, read_view
from mainspring.runtime.workflows.run_context import MAX_STEPS, PARALLEL
from mainspring.runtime.workflows.run_control import GateReply, answer_gate, control_event
from mainspring.runtime.workflows.run_view import RunView, gate_views

DONE, FAILED, WAITS, STOPPED = 0, 1, 3, 130  # statuses; 130 is a shell's after SIGINT
_EXIT = {"completed": DONE, "failed": FAILED, "cancelled": STOPPED}

RunArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, a unique part of it, or `last`.")
]
NodeArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="NODE", help="A node of the workflow.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options of every command that runs nodes."""

    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="DIR", help="The agent's folder. [default: this folder]"),
    ] = None
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="The model of nodes that name none."),
    ] = None
    mode: Annotated[
        ModeChoice | None,
        typer.Option("--mode", help="What nodes may do without asking.", show_choices=True),
    ] = None
    max_cost: Annotated[
        str | None,
        typer.Option("--max-cost", metavar="USD", help="The cost limit of the whole run."),
    ] = None
    max_steps: Annotated[
        int | None,
        typer.Option(
            "--max-steps",
            min=1,
            metavar="N",
            help="How many nodes the run may start. [default: 1000]",
        ),
    ] = None
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel", min=1, metavar="N", help="Nodes at the same time. [default: 20]"
        ),
    ] = None
    unsandboxed: Annotated[
        bool,
        typer.Option(
            "--dangerously-run-unsandboxed",
            help="If no sandbox works, run programs anyway, with all your permissions.",
        ),
    ] = False

    def run_options(self) -> RunOptions:
        return RunOptions(
            agent=None if self.agent is None else Path(self.agent),
            model=self.model,
            mode=self.mode,
            max_cost_usd=None if self.max_cost is None else parse_limit(self.max_cost),
            is_unsandboxed=self.unsandboxed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """The options of `run` about this run."""

    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=VALUE", help="An input. Can be repeated."),
    ] = None
    input_file: Annotated[
        str | None, typer.Option("--inputs", metavar="FILE", help="Inputs as a JSON object.")
    ] = None
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="The same key again continues the same run."),
    ] = None
    at_most: Annotated[
        int | None,
        typer.Option(
            "--at-most",
            min=1,
            metavar="N",
            help="Refuse while so many runs of the workflow have not ended.",
        ),
    ] = None
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="BRANCH", help="$BASE_BRANCH. [default: the main branch]"),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the order, the gates and the cost; run nothing."),
    ] = False
    recorded: Annotated[
        str | None,
        typer.Option("--recorded", metavar="FILE", help="For --dry-run: a test with outputs."),
    ] = None


async def run(
    settings: Settings,
    *,
    name: Annotated[
        str, typer.Argument(metavar="WORKFLOW", help="A workflow's name, or its file.")
    ],
    arguments: Annotated[
        str, typer.Argument(metavar="[ARGUMENTS]", help="What the workflow reads as $ARGUMENTS.")
    ] = "",
    start: StartOptions,
    engine: EngineOptions,
    json: JsonOption = False,
) -> int:
    """Run a workflow. Exit status: 0 completed, 3 waiting for an answer, 1 failed, 130
    cancelled."""
    find = collect_files if start.dry_run else find_trusted
    files = await find(settings, name)
    given = parse_inputs(files.workflow(files.main), start.inputs or (), start.input_file)
    if start.dry_run:
        request = RunRequest(files=files, arguments=arguments, inputs=given)
        recorded = start.recorded
        return await print_dry_run(settings, request, recorded, engine.model, json=json)
    screen = Screen(settings, stderr=True)
    async with _project(settings, engine, json=json) as workflows:
        log = workflows.log
        request = RunRequest(
            files=files,
            arguments=arguments,
            inputs=given,
            run_key=start.key,
            workspace=workflows.steps.runtime.options.workspace,
            base_branch=start.base or workflows.base_branch,
        )
        await require_few_runs(log, files.main, start.at_most)
        run_id, is_new = await start_run(log, request, workflows.sender)
        if not is_new:
            print_note(
                settings, f"the run with the key {start.key} exists: {screen.id_text(run_id)}"
            )
        return _report(settings, await workflows.go_on(run_id), json=json)


async def resume(
    settings: Settings, *, run_id: RunArgument, engine: EngineOptions, json: JsonOption = False
) -> int:
    """Continue a run: after an answer, a pause or a crash. Nodes that failed run again."""
    return await _continue(settings, run_id, engine, "resume", json=json)


async def retry(
    settings: Settings,
    *,
    run_id: RunArgument,
    node: NodeArgument,
    engine: EngineOptions,
    json: JsonOption = False,
) -> int:
    """Run a node again, and every node behind it."""
    return await _continue(settings, run_id, engine, "retry", node=node, json=json)


async def skip(
    settings: Settings,
    *,
    run_id: RunArgument,
    node: NodeArgument,
    engine: EngineOptions,
    json: JsonOption = False,
) -> int:
    """Continue without a node that failed. An approval cannot be skipped."""
    return await _continue(settings, run_id, engine, "skip", node=node, json=json)


async def pause(settings: Settings, *, run_id: RunArgument) -> int:
    """Start no further node of a run. `resume` continues it."""
    return await _control(settings, run_id, "pause")


async def cancel(
    settings: Settings,
    *,
    run_id: RunArgument,
    reason: Annotated[str, typer.Argument(metavar="[REASON]", help="Why.")] = "cancelled",
) -> int:
    """End a run. What is running is stopped."""
    await _control(settings, run_id, "cancel", text=reason, quiet=True)
    return await _continue(settings, run_id, EngineOptions(), None, json=False)


async def respond(
    settings: Settings,
    *,
    run_id: RunArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[NODE] DECISION [TEXT]", help="The gate, the decision, and what to add."
        ),
    ],
) -> int:
    """Answer a gate. The answer counts only for what the gate shows; `resume` continues the run."""
    async with open_existing_log(settings) as log:
        row = await find_run(log, run_id, "workflow")
        state = await read_run(log, row.id)
        choices = {gate.node: gate.choices for gate in gate_views(state, row.id)}
        is_named = len(words) > 1 and words[1] in choices.get(words[0], ())
        node, rest = (words[0], words[1:]) if is_named else (None, words)
        decision = rest[0]
        reply = GateReply(decision=decision, node=node, text=" ".join(rest[1:]))
        await answer_gate(log, row.id, reply, local_user(settings.user))
        name = Screen(settings).id_text(row.id)
    print_note(settings, f"answered: {decision}; continue: mainspring workflow resume {name}")
    return DONE


async def fork(
    settings: Settings,
    *,
    run_id: RunArgument,
    node: Annotated[
        str | None, typer.Option("--at", metavar="NODE", help="Begin again with this node.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Create a run that begins with another run's finished nodes. `resume` runs it."""
    async with open_existing_log(settings) as log:
        row = await find_run(log, run_id, "workflow")
        fork_id = await fork_run(log, row.id, node, local_user(settings.user))
    view = {"run_id": fork_id, "forked_from": row.id}
    text = f"forked: mainspring workflow resume {Screen(settings).id_text(fork_id)}"
    return print_result(settings, view, (text, ""), json=json)


async def show(settings: Settings, *, run_id: RunArgument, json: JsonOption = False) -> int:
    """Show a run: its nodes with status, time and cost, and the gates that wait."""
    async with open_existing_log(settings) as log:
        row = await find_run(log, run_id, "workflow")
        view = await read_view(workflow_files(settings), log, row.id)
    screen = Screen(settings)
    if json:
        screen.json(view)
    else:
        print_run(screen, view)
    return DONE


async def logs(
    settings: Settings,
    *,
    run_id: RunArgument,
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Only the output of this node.")
    ] = None,
) -> int:
    """Print the outputs of a run's nodes, with earlier attempts."""
    async with open_existing_log(settings) as log:
        row = await find_run(log, run_id, "workflow")
        state = await read_run(log, row.id)
        screen = Screen(settings)
        for item in (*state.earlier, *state.nodes.values()):
            if node is not None and item.path != node:
                continue
            text = item.output
            if item.output_blob is not None:
                text = (await log.blob(item.output_blob)).decode("utf-8", "replace")
            attempt = f" attempt {item.attempt}" if item.attempt > 1 else ""
            screen.line((item.path, "bold"), (f"{attempt}  {item.status}", "dim"))
            screen.text("".join(f"{line}\n" for line in (text or item.error or "").splitlines()))
    return DONE


@asynccontextmanager
async def _existing(settings: Settings, run_id: str) -> AsyncGenerator[str, None]:
    async with open_existing_log(settings) as log:
        row = await find_run(log, run_id, "workflow")
        await read_run(log, row.id)
        full = row.id
    yield full


async def _control(
    settings: Settings,
    run_id: str,
    action: NodeAction,
    *,
    node: str | None = None,
    text: str | None = None,
    quiet: bool = False,
) -> int:
    async with open_existing_log(settings) as log:
        row = await find_run(log, run_id, "workflow")
        control = await control_event(log, row.id, action, node=node, text=text)
        await log.submit(row.id, control, sender=local_user(settings.user))
    if not quiet:
        print_note(settings, f"{action}: sent to the run")
    return DONE


async def _continue(  # parameters: what each of four commands adds
    settings: Settings,
    run_id: str,
    engine: EngineOptions,
    action: NodeAction | None,
    *,
    node: str | None = None,
    json: bool,
) -> int:
    if action is not None:
        await _control(settings, run_id, action, node=node, quiet=True)
    async with _existing(settings, run_id) as full:
        pass
    async with _project(settings, engine, json=json) as workflows:
        try:
            return _report(settings, await workflows.go_on(full), json=json)
        except LeaseHeld:
            print_note(settings, "another process runs it and has your message")
            return DONE


def _project(
    settings: Settings, engine: EngineOptions, *, json: bool
) -> AbstractAsyncContextManager[ProjectWorkflows]:
    show = _json_printer(settings) if json else live_printer(Screen(settings, stderr=True))
    return open_workflows_here(
        settings,
        engine.run_options(),
        max_cost_usd=None if engine.max_cost is None else parse_limit(engine.max_cost),
        max_steps=engine.max_steps or MAX_STEPS,
        parallel=engine.parallel or PARALLEL,
        on_event=show,
    )


def _json_printer(settings: Settings) -> Callable[[Event], None]:
    screen = Screen(settings)

    def show(event: Event) -> None:
        screen.json_line(encode_line(event))

    return show


def _report(settings: Settings, view: RunView, *, json: bool) -> int:
    screen = Screen(settings)
    if json:
        screen.json(view)
    else:
        print_run(screen, view)
    return _EXIT.get(view.status, WAITS)
