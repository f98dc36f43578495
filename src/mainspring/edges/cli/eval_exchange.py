"""`mainspring eval import`: suites of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.edges.cli.eval_suites import AgentOption
from mainspring.edges.cli.printing import Screen, plural, print_note
from mainspring.improve.evals.exchange import read_foreign_suite
from mainspring.improve.evals.new_suite import write_suite
from mainspring.improve.evals.suite_files import EVALS_FOLDER


async def import_(
    settings: Settings,
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="promptfoo's YAML or skill-creator's evals.json.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="[default: the file's name]")
    ] = None,
    agent: AgentOption = None,
) -> int:
    """Write a suite of another tool as one of this agent."""
    source = Path(settings.folder, file)
    suite, notes = await to_thread.run_sync(read_foreign_suite, source)
    if name is not None:
        suite = msgspec.structs.replace(suite, name=name)
    folder = Path(settings.folder, agent or ".")
    written = await to_thread.run_sync(write_suite, folder, suite)
    for note in notes:
        print_note(settings, note, "yellow")
    text = f" with {plural(len(suite.cases), 'case')}"
    Screen(settings).line(("wrote ", ""), (f"{EVALS_FOLDER}/{written.name}", "bold"), (text, ""))
    return 0
