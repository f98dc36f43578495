"""Opens the workflows of a folder and what runs them, for the commands of the group."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack, cast

import msgspec
import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.render.printing import Screen, confirm
from mainspring.edges.cli.run.approval_prompt import is_interactive
from mainspring.edges.cli.run.session_runner import open_session_runner
from mainspring.error_table import with_hints
from mainspring.log.session_log import SessionLog
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.workflows.engine import all_runs
from mainspring.runtime.workflows.format.definition import Workflow
from mainspring.runtime.workflows.project_workflows import (
    ProjectWorkflows,
    WorkflowArguments,
    open_project,
)
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.workflow_files import WorkflowFiles, programs
from mainspring.wiring.workflow_steps import project_places

_SHOWN_CHARS = 400
"""How much of a program is shown before it is trusted; `show` prints all of it."""


def workflow_files(settings: Settings) -> WorkflowFiles:
    return WorkflowFiles(root=Path(settings.folder).absolute(), home=Path(settings.home))


async def find_trusted(settings: Settings, name: str, *, trusts: bool = False) -> RunFiles:
    """A workflow that may run. At a terminal, the user can trust it now.

    Raises: InvalidInput: nobody trusts it as it is now, or it is not valid.
    """
    files = workflow_files(settings)
    workflow = await to_thread.run_sync(files.find, name)
    collected = await to_thread.run_sync(files.collect, workflow)
    trust = await to_thread.run_sync(files.trust, workflow, collected)
    if trust in ("user", "trusted"):
        return collected
    why = "has changed since it was trusted" if trust == "changed" else "is not trusted yet"
    if not trusts and not is_interactive():
        refusal = InvalidInput(f"workflow {workflow.name} {why}")
        raise with_hints(refusal, f"read it, then: mainspring workflow trust {workflow.name}")
    show_before_trust(settings, collected)
    if not trusts and not confirm(settings, f"Workflow {workflow.name} {why}. Trust it?"):
        raise InvalidInput(f"workflow {workflow.name} {why}")
    await to_thread.run_sync(files.pin, workflow, collected, clock.now())
    return collected


async def collect_files(settings: Settings, name: str) -> RunFiles:
    """A workflow, whether anybody trusts it or not: nothing of it may run."""
    files = workflow_files(settings)
    return await to_thread.run_sync(lambda: files.collect(files.find(name)))


async def require_few_runs(log: SessionLog, workflow: str, most: int | None) -> None:
    """Raises: InvalidInput: so many runs of a workflow have not ended."""
    if most is None:
        return
    runs = [run async for _, run in all_runs(log)]
    count = sum(run.created.name == workflow and not run.has_ended for run in runs)
    if count >= most:
        raise InvalidInput(f"{count} runs of {workflow} have not ended; the limit is {most}")


def show_before_trust(settings: Settings, files: RunFiles) -> None:
    """Print what a workflow can do: its files and its programs."""
    screen = Screen(settings, stderr=True)
    for kind, place in files.files.items():
        screen.paragraph((f"{kind}  ", "dim"), (place, ""))
    for name in files.workflows:
        for node, text in programs(files.workflow(name)):
            screen.line((f"{name} {node}", "bold"), ("  runs", "dim"))
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} ..."
            screen.text("".join(f"    {line}\n" for line in shown.splitlines()))


@asynccontextmanager
async def open_workflows_here(
    settings: Settings, options: RunOptions, **arguments: Unpack[WorkflowArguments]
) -> AsyncGenerator[ProjectWorkflows, None]:
    """The workflows of this folder, run by its agent with the options of the command."""
    async with open_session_runner(settings, options, None, answered_later=True) as runner:
        runtime = runner.runtime
        runtime.options = replace(runtime.options, workspace=options.workspace)
        yield await open_project(runtime, runner.agent, project_places(settings), **arguments)


def parse_inputs(workflow: Workflow, pairs: Sequence[str], file: str | None) -> dict[str, object]:
    """Inputs from options and from a JSON file; the options win."""
    inputs: dict[str, object] = {}
    if file is not None:
        try:
            inputs = msgspec.json.decode(Path(file).read_bytes(), type=dict[str, object])
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(f"{file}: {error}") from error
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE")
        inputs[name] = text
    for name, spec in workflow.inputs.items():
        if name not in inputs and spec.required and is_interactive():
            hint = f" ({spec.description})" if spec.description else ""
            inputs[name] = cast("str", typer.prompt(f"{name}{hint}"))
    return inputs
