"""`mainspring init`: how it is called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption
from mainspring.edges.cli.run_and_chat import ModeName

if TYPE_CHECKING:
    from mainspring.edges.cli import init_acts
else:
    init_acts = LazyModule("mainspring.edges.cli.init_acts")


def init(  # noqa: PLR0913, PLR0917 (the options of the command)
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="Where; else this folder.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="[default: the folder's name]")
    ] = None,
    purpose: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What it is for, in a sentence.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="[default: whichever there is]"),
    ] = None,
    tools: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="With commas: read,grep,edit. [default: all]"),
    ] = None,
    mode: Annotated[
        ModeName | None,
        typer.Option("--mode", help="What it may do without asking.", show_choices=True),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask: what is usual, where nothing is said.")
    ] = False,
    json_option: JsonOption = False,
) -> Action:
    """Make a new agent: a few questions, then a small folder that runs at once. What is there
    already stays as it is."""
    wanted = init_acts.InitOptions(
        name=name,
        purpose=purpose,
        model=model,
        tools=tools,
        mode=None if mode is None else mode.value,
        is_asked=not yes,
    )
    return partial(init_acts.init, folder=folder, init_options=wanted, json=json_option)
