"""`mainspring memory import`, `export` and `vectors`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.memory_usage import app
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.printing import Screen, print_note
from mainspring.runtime.memory.vector_settings import (
    read_vector_settings,
    remove_vectors,
    set_vectors,
)


@command(app)
async def vectors(
    settings: Settings,
    *,
    table: Annotated[
        str,
        typer.Argument(
            metavar="[TABLE]",
            help="An .npz table, or a folder of model2vec; `off` searches by words only.",
        ),
    ] = "",
    json: JsonOption = False,
) -> int:
    """Search by vectors too, with a table of yours. Without TABLE, show which one is used."""
    home = Path(settings.home)
    if table == "off":
        remove_vectors(home)
    elif table:
        await to_thread.run_sync(set_vectors, home, Path(table))
    current = read_vector_settings(home)
    if json:
        Screen(settings).json(current)
    elif current is None:
        print_note(settings, "searches by words only")
    else:
        print_note(settings, f"searches with {current.table} ({current.fingerprint})")
    return 0
