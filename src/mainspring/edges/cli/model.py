"""`mainspring models`: how its commands are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import model_acts
else:
    model_acts = LazyModule("mainspring.edges.cli.model_acts")

app = typer.Typer(
    help="Which models there are, whether they answer, and whether a stand-in would do.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def ls(json: JsonOption = False) -> Action:
    """List the models of the catalog: window, price, and whether a key is set."""
    return partial(model_acts.ls, json=json)


@app.command("test")
def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="provider:name, or an alias.")],
    json: JsonOption = False,
) -> Action:
    """Make one tiny call and tell how long it took and what it cost."""
    return partial(model_acts.test, name=name, json=json)


@app.command()
def drill(
    names: Annotated[
        str, typer.Argument(metavar="NAMES", help="Two models or more, separated by commas.")
    ],
    json: JsonOption = False,
) -> Action:
    """As if the first model were down: have the next one do an agent's work."""
    return partial(model_acts.drill, names=names, json=json)
