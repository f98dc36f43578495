"""`mainspring backup`, `restore` and `migrate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Annotated

import typer

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen, plural, print_note
from mainspring.edges.cli.session_lookup import require_store
from mainspring.error_table import with_hints
from mainspring.files.atomic_file import atomic_write, file_errors
from mainspring.log.backup import Counts, restore_backup, write_backup
from mainspring.log.migrate import SchemaStatus
from mainspring.wiring import stores

_PROGRESS_SECONDS = 5.0  # between two lines of progress
_EXCLUDED_NOTE = "not included: workspaces, and the vault with the key that sealed secrets need"


class _Progress:
    """Prints the counts every few seconds."""

    def __init__(self, notes: Screen) -> None:
        self._notes = notes
        self._printed_at = time.monotonic()

    def report(self, counts: Counts) -> None:
        if time.monotonic() - self._printed_at >= _PROGRESS_SECONDS:
            self._printed_at = time.monotonic()
            self._notes.line((f"{_counts_text(counts)} so far", "dim"))


async def backup(
    settings: Settings,
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to write; - is standard output.")
    ],
    json: JsonOption = False,
) -> int:
    """Write the whole store to a file. The store can be used meanwhile.

    The vault, its key and the files in workspaces are not included.
    """
    require_store(settings)
    notes = Screen(settings, stderr=True)
    async with stores.open_store(settings) as store:
        with _open_output(file) as output:
            counts = await write_backup(
                store, output, time=clock.now(), report_progress=_Progress(notes).report
            )
    for session_id in counts.damaged:
        notes.paragraph((f"warning: {session_id} is damaged and was not included", "yellow"))
    if counts.damaged:
        notes.paragraph(("hint: `mainspring log verify` says what is wrong with it", "dim"))
    # the backup itself may go to standard output
    _print_counts(Screen(settings, stderr=file == "-"), "wrote", file, counts, json=json)
    print_note(settings, _EXCLUDED_NOTE)
    return 1 if counts.damaged else 0


@contextmanager
def _open_output(name: str) -> Generator[IO[bytes], None, None]:
    if name == "-":
        if sys.stdout.isatty():
            raise InvalidInput("a backup cannot go to a terminal: name a file, or pipe it")
        yield sys.stdout.buffer
        return
    with file_errors(name), atomic_write(Path(name)) as file:
        yield file


async def restore(
    settings: Settings,
    *,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A file written by backup; - is standard input."),
    ],
    into: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="An empty store: a SQLite file or postgresql://... [default: --store]",
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Restore a backup into an empty store. If anything fails, nothing is restored."""
    settings = settings if into is None else replace(settings, store=into)
    notes = Screen(settings, stderr=True)
    with file_errors(file):
        source = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115, ASYNC230
    with source:
        async with stores.open_store(settings) as store:
            try:
                counts = await restore_backup(
                    store, source, report_progress=_Progress(notes).report
                )
            except InvalidInput as error:
                hint = f"nothing was restored into {settings.store_label}"
                raise with_hints(InvalidInput(f"{file}: {error}"), hint) from error
    _print_counts(Screen(settings), "restored", file, counts, json=json)
    return 0


def _print_counts(screen: Screen, verb: str, file: str, counts: Counts, *, json: bool) -> None:
    if json:
        view = {"file": file, **asdict(counts)}
        screen.json({name: value for name, value in view.items() if value != []})
    else:
        screen.paragraph((f"{verb} ", "green"), (file, ""), (f"  {_counts_text(counts)}", "dim"))


def _counts_text(counts: Counts) -> str:
    sessions, records = plural(counts.sessions, "session"), plural(counts.records, "record")
    return f"{sessions}, {records}, {plural(counts.tallies, 'counter')}"


async def migrate(
    settings: Settings,
    *,
    to: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            min=1,
            help="The version to migrate to; an older one only if no data is lost.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Change nothing; exit with status 1 if the store needs a migration."
        ),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Migrate the store's tables to this version. Opening the store also does this."""
    if check and to is not None:
        raise typer.BadParameter("cannot be combined with --to", param_hint="--check")
    require_store(settings)
    if not check:
        await stores.migrate(settings.store, to)
    status = await stores.schema_status(settings.store)
    screen = Screen(settings)
    if json:
        screen.json({"version": status.current, "newest": status.newest})
    else:
        screen.paragraph((f"{settings.store_label}  ", ""), (_migration_text(status), "dim"))
    return int(check and status.current != status.newest)


def _migration_text(status: SchemaStatus) -> str:
    current, newest = status.current, status.newest
    if current == newest:
        return f"tables of version {current}, which this Mainspring uses"
    if current > newest:
        return f"tables of version {current}; this Mainspring supports {newest}: upgrade it"
    return f"tables of version {current}; `mainspring migrate` migrates them to {newest}"
