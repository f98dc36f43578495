"""`mainspring backup`, `restore` and `migrate`: how they are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import backup_acts
else:
    backup_acts = LazyModule("mainspring.edges.cli.backup_acts")


def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is standard output.")],
    json_option: JsonOption = False,
) -> Action:
    """Write all that the store holds to a file, while others go on using it.

    Not in it: the vault, its key, and what is in workspaces.
    """
    return partial(backup_acts.backup, name=file, json=json_option)


def restore(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What backup wrote; - is standard input.")
    ],
    into: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="An empty store: a SQLite file or postgresql://... [default: --store]",
        ),
    ] = None,
    json_option: JsonOption = False,
) -> Action:
    """Make an empty store hold what a backup does: all of it or nothing."""
    return partial(backup_acts.restore, name=file, into=into, json=json_option)


def migrate(
    to: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION", min=1, help="Of the tables; an older one, if that loses nothing."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only tell; the exit status is 1 if it is behind.")
    ] = False,
    json_option: JsonOption = False,
) -> Action:
    """Bring the store's tables to this version of Mainspring. Opening it does so, too."""
    if check and to is not None:
        raise typer.BadParameter("changes nothing, and --to does", param_hint="--check")
    return partial(backup_acts.migrate, target=to, is_check=check, json=json_option)
