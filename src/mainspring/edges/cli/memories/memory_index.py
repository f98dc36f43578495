"""`mainspring memory doctor`, `import`, `export`, `encrypt` and `vectors`: commands for all files
and the index."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.memories.memory import ScopeOption, change_by_hand, scoped_folders
from mainspring.edges.cli.memories.memory_usage import app
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen, plural, print_list, print_note
from mainspring.runtime.memory.memory_doctor import examine
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.note_import import import_notes
from mainspring.runtime.memory.search.vector_settings import (
    read_vector_settings,
    remove_vectors,
)
from mainspring.wiring.memory import index_files, set_memory_vectors


@command(app)
async def doctor(
    settings: Settings,
    *,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild the index.")] = False,
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


@command(app, name="import")
async def import_(
    settings: Settings,
    *,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A note, a folder with MEMORY.md, or a vault of notes."
        ),
    ],
    scope: ScopeOption = "agent",
    json: JsonOption = False,
) -> int:
    """Import notes as memories. Existing memories are not overwritten."""
    (folder,) = scoped_folders(settings, scope).values()
    change = change_by_hand(settings, f"imported from {Path(source).name}")
    screen, counts = Screen(settings), Counter[str]()

    def work() -> None:
        for note in import_notes(folder, Path(source), change):
            counts[note.outcome] += 1
            if json:
                screen.json(note)
            elif note.problem:
                screen.line((f"{note.source}: {note.problem}", "red"))

    await to_thread.run_sync(work)
    if not json:
        print_note(
            settings,
            f"imported {plural(counts['imported'], 'note')}, {counts['present']} were there,"
            f" {counts['refused']} refused",
        )
    return int(bool(counts["refused"]))


@command(app)
async def export(
    settings: Settings,
    *,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    scope: ScopeOption = "agent",
) -> int:
    """Copy memories to a folder, without their versions."""
    (memories,) = scoped_folders(settings, scope).values()

    def work() -> int:
        target = Path(folder)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InvalidInput(f"{folder} is not an empty folder")
        paths = memories.paths()
        for path in paths:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(memories.content(path))
        return len(paths)

    count = await to_thread.run_sync(work)
    print_note(settings, f"exported {plural(count, 'file')} to {folder}")
    return 0


@command(app)
async def vectors(
    settings: Settings,
    *,
    table: Annotated[
        str,
        typer.Argument(
            metavar="[TABLE|MODEL]",
            help="An .npz table, a folder of model2vec, or an embedding model of a provider as"
            " openai:text-embedding-3-small; `off` searches by words only.",
        ),
    ] = "",
    json: JsonOption = False,
) -> int:
    """Choose the vectors for searches. They come from your own table, or from a provider, which
    then receives the texts of memories and questions. Without an argument, show the current
    source."""
    home = Path(settings.home)
    if table == "off":
        remove_vectors(home)
    elif table:
        await to_thread.run_sync(set_memory_vectors, settings, table)
    current = read_vector_settings(home)
    if json:
        Screen(settings).json(current)
    elif current is None:
        print_note(settings, "searches by words only")
    else:
        print_note(settings, f"searches with {current.source} ({current.fingerprint})")
    return 0


@command(app)
async def encrypt(settings: Settings, *, scope: ScopeOption = "agent") -> int:
    """Encrypt the files and versions of a scope. The key of the vault is used."""
    (folder,) = scoped_folders(settings, scope).values()
    count = await to_thread.run_sync(folder.encrypt)
    await to_thread.run_sync(index_files(settings).purge, scoped_folders(settings, ""), scope)
    print_note(settings, f"encrypted {plural(count, 'file')} of {folder.root}")
    return 0


@command(app)
async def decrypt(settings: Settings, *, scope: ScopeOption = "agent") -> int:
    """Decrypt the files and versions of a scope."""
    (folder,) = scoped_folders(settings, scope).values()
    count = await to_thread.run_sync(folder.decrypt)
    print_note(settings, f"decrypted {plural(count, 'file')} of {folder.root}")
    return 0


def _rebuild(settings: Settings, folders: dict[str, MemoryFolder]) -> int:
    screen = Screen(settings, stderr=True)
    with closing(index_files(settings).open(folders)) as index:
        return index.rebuild(lambda count: screen.line((f"indexed {count:,} ...", "dim")))
