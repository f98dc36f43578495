"""What `mainspring backup`, `restore` and `migrate` do."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.atomic_files import atomic_write, file_errors
from mainspring.edges.cli.printing import Screen, plural
from mainspring.edges.cli.session_lookup import require_store
from mainspring.log.backup import Counts, restore_backup, write_backup
from mainspring.log.migrate import SchemaStatus
from mainspring.wiring import stores

_PROGRESS_SECONDS = 5.0
_EXCLUDED_NOTE = "not in it: the vault and its key, which its sealed secrets need, and workspaces"


class CountsView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    file: str
    sessions: int
    records: int
    tallies: int
    damaged: tuple[str, ...] = ()


class MigrationView(Struct, frozen=True, kw_only=True):
    version: int
    newest: int


class _Progress:
    """Tells now and then how far it has come."""

    def __init__(self, notes: Screen) -> None:
        self._notes = notes
        self._told = time.monotonic()

    def tell(self, counts: Counts) -> None:
        if time.monotonic() - self._told >= _PROGRESS_SECONDS:
            self._told = time.monotonic()
            self._notes.line((f"{_counts_text(counts)} so far", "dim"))


async def backup(settings: Settings, *, name: str, json: bool) -> int:
    require_store(settings)
    notes = Screen(settings, stderr=True)
    async with stores.open_store(settings.store) as store:
        with _open_output(name) as file:
            counts = await write_backup(
                store, file, time=clock.now(), report_progress=_Progress(notes).tell
            )
    for session_id in counts.damaged:
        notes.paragraph((f"warning: {session_id} is damaged and was left out", "yellow"))
    if counts.damaged:
        notes.paragraph(("hint: `mainspring log verify` says what is wrong with it", "dim"))
    # what is piped elsewhere is the backup itself
    _print_counts(Screen(settings, stderr=name == "-"), "wrote", name, counts, json=json)
    notes.paragraph((_EXCLUDED_NOTE, "dim"))
    return 1 if counts.damaged else 0


@contextmanager
def _open_output(name: str) -> Generator[IO[bytes], None, None]:
    if name == "-":
        if sys.stdout.isatty():
            raise InvalidInput("a backup is not for a terminal: name a file, or pipe it on")
        yield sys.stdout.buffer
        return
    with file_errors(name), atomic_write(Path(name)) as file:
        yield file


async def restore(settings: Settings, *, name: str, into: str | None, json: bool) -> int:
    settings = settings if into is None else replace(settings, store=into)
    notes = Screen(settings, stderr=True)
    with file_errors(name):
        file = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115, ASYNC230
    with file:
        async with stores.open_store(settings.store) as store:
            try:
                counts = await restore_backup(store, file, report_progress=_Progress(notes).tell)
            except InvalidInput as error:
                refused = InvalidInput(f"{name}: {error}")
                refused.add_note(f"nothing was restored into {settings.store_label}")
                raise refused from error
    _print_counts(Screen(settings), "restored", name, counts, json=json)
    return 0


def _print_counts(screen: Screen, did: str, name: str, counts: Counts, *, json: bool) -> None:
    if json:
        view = CountsView(
            file=name,
            sessions=counts.sessions,
            records=counts.records,
            tallies=counts.tallies,
            damaged=tuple(counts.damaged),
        )
        screen.json(msgspec.json.encode(view))
    else:
        screen.paragraph((f"{did} ", "green"), (name, ""), (f"  {_counts_text(counts)}", "dim"))


def _counts_text(counts: Counts) -> str:
    return ", ".join(
        (
            plural(counts.sessions, "session"),
            plural(counts.records, "record"),
            plural(counts.tallies, "counter"),
        )
    )


async def migrate(settings: Settings, *, target: int | None, is_check: bool, json: bool) -> int:
    require_store(settings)
    if not is_check:
        await stores.migrate(settings.store, target)
    found = await stores.schema_status(settings.store)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(MigrationView(version=found.current, newest=found.newest)))
    else:
        screen.paragraph((f"{settings.store_label}  ", ""), (_migration_text(found), "dim"))
    return int(is_check and found.current != found.newest)


def _migration_text(found: SchemaStatus) -> str:
    if found.current == found.newest:
        return f"tables of version {found.current}, as this Mainspring needs them"
    if found.current > found.newest:
        return (
            f"tables of version {found.current}; this Mainspring knows {found.newest}: upgrade it"
        )
    return f"tables of version {found.current}; `mainspring migrate` brings them to {found.newest}"
