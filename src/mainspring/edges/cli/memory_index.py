"""`mainspring memory doctor` and `vectors`: the state of files and index."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.memory import scoped_folders
from mainspring.edges.cli.memory_usage import app
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.printing import Screen, plural, print_list, print_note
from mainspring.runtime.memory.memory_doctor import examine
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.vector_settings import (
    read_vector_settings,
    remove_vectors,
    set_vectors,
)
from mainspring.wiring.memory import open_memory_index


@command(app)
async def doctor(
    settings: Settings,
    *,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Index everything again.")] = False,
    json: JsonOption = False,
) -> int:
    """Check the files, their versions and the index."""
    folders = scoped_folders(settings, "")
    findings = [
        finding
        for folder in folders.values()
        for finding in await to_thread.run_sync(examine, folder)
    ]
    if rebuild:
        count = await to_thread.run_sync(_rebuild, settings, folders)
        if not json:
            print_note(settings, f"indexed {plural(count, 'file')}")
    print_list(
        settings,
        findings,
        json=json,
        heads=["PATH", "PROBLEM", "FIX"],
        row=lambda finding: [(finding.path, "bold"), (finding.problem, ""), (finding.fix, "dim")],
        empty="no problem was found",
    )
    return int(bool(findings))


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


def _rebuild(settings: Settings, folders: dict[str, MemoryFolder]) -> int:
    screen = Screen(settings, stderr=True)
    with closing(open_memory_index(settings, folders)) as index:
        return index.rebuild(lambda count: screen.line((f"indexed {count:,} ...", "dim")))
