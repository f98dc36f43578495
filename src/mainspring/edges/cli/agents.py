"""`mainspring agents`: how its commands are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import agents_acts
else:
    agents_acts = LazyModule("mainspring.edges.cli.agents_acts")

app = typer.Typer(
    help="Agents as folders: which there are, what they are, and what they were.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AgentArgument: TypeAlias = Annotated[
    str | None, typer.Option("--agent", metavar="DIR", help="The agent's folder; else this one.")
]


@app.command()
def ls(json: JsonOption = False) -> Action:
    """List the agents here and in folders below."""
    return partial(agents_acts.ls, json=json)


@app.command()
def show(
    folder: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="The agent's folder; else this one.")
    ] = None,
    json: JsonOption = False,
) -> Action:
    """Show an agent as it would run: all its parts, wider scopes included, and its version."""
    return partial(agents_acts.show, folder=folder, json=json)


@app.command()
def diff(
    before: Annotated[
        int | None, typer.Argument(metavar="[A]", help="A version; else the last one.", min=1)
    ] = None,
    after: Annotated[
        int | None, typer.Argument(metavar="[B]", help="Another; else the files now.", min=1)
    ] = None,
    agent: AgentArgument = None,
) -> Action:
    """Show what has changed between two versions. A version is kept whenever a session begins with
    files that have changed."""
    return partial(agents_acts.diff, folder=agent, before=before, after=after)


@app.command()
def rollback(
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1)], agent: AgentArgument = None
) -> Action:
    """Make an agent's files what they were in a version. What they are now is kept as a version
    first, so that this can be undone in the same way."""
    return partial(agents_acts.rollback, folder=agent, number=version)
