"""`mainspring vault`: how its commands are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import vault_acts
else:
    vault_acts = LazyModule("mainspring.edges.cli.vault_acts")

app = typer.Typer(
    help="Secrets that agents use without seeing them.", no_args_is_help=True, rich_markup_mode=None
)

SecretName = Annotated[
    str, typer.Argument(metavar="NAME", help="As a variable is called: GITHUB_TOKEN.")
]


@app.command("set")
def put(
    name: SecretName,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Where it may be sent: api.example.com, or *.example.com for all below."
            " May be given several times; without it, nowhere from a sandbox.",
            metavar="HOST",
        ),
    ] = None,
    json: JsonOption = False,
) -> Action:
    """Keep a secret. Its value is asked for, or read from standard input; never an argument."""
    return partial(vault_acts.put, name=name, hosts=host or [], json=json)


@app.command()
def ls(json: JsonOption = False) -> Action:
    """List the secrets: names, hosts and dates, never values."""
    return partial(vault_acts.ls, json=json)


@app.command()
def rm(name: SecretName, json: JsonOption = False) -> Action:
    """Forget a secret."""
    return partial(vault_acts.rm, name=name, json=json)
