"""`mainspring log verify`, `export`, `import`, `rm` and `expire`: operations on whole sessions."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import anyio
import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.clock import to_micros
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.log import app, session_view
from mainspring.edges.cli.options import JsonOption, SessionArgument, YesOption, parse_duration
from mainspring.edges.cli.printing import Screen, local_time, plural, print_note
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.files.atomic_file import atomic_write, file_errors
from mainspring.log import transfer
from mainspring.log import verify as verifying
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, all_sessions
from mainspring.log.verify import Problem, VerifyReport
from mainspring.runtime.session.session_summary import read_footprint
from mainspring.wiring.stores import open_log

if TYPE_CHECKING:
    from mainspring.wiring import session_files
else:  # it brings the sandbox with it
    session_files = LazyModule("mainspring.wiring.session_files")

_CHUNK_BYTES = 1 << 20
_MAX_LISTED = 10
_MAX_EXPIRED = 100_000


class VerifyView(Struct, frozen=True, kw_only=True):
    session_id: str
    ok: bool
    events: int
    problems: tuple[Problem, ...]


@command(app)
async def verify(
    settings: Settings,
    *,
    session: Annotated[
        str | None,
        typer.Argument(metavar="[SESSION]", help="The session's id, or a unique part of it."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    json: JsonOption = False,
) -> int:
    """Check that no log was changed after it was written."""
    if (session is None) != every:
        raise typer.BadParameter("give one: a session, or --all", param_hint="SESSION")
    screen = Screen(settings)
    checked = spoiled = 0
    async with open_existing_log(settings) as log:
        if session is None:
            ids = [session.id async for session in all_sessions(log.store)]
        else:
            ids = [(await find_session(log, session)).id]
        for session_id in ids:
            report = await verifying.verify(log, session_id)
            checked += 1
            spoiled += not report.ok
            if json:
                screen.json(_report_view(report))
            else:
                _print_report(screen, report)
    if session is None and not json:
        screen.line((f"{plural(checked, 'session')} checked, {spoiled} with problems", "bold"))
    return 1 if spoiled else 0


def _report_view(report: VerifyReport) -> VerifyView:
    return VerifyView(
        session_id=report.session_id,
        ok=report.ok,
        events=report.events,
        problems=report.problems,
    )


def _print_report(screen: Screen, report: VerifyReport) -> None:
    if report.ok:
        screen.line(
            ("ok    ", "green"),
            (report.session_id, ""),
            (f"  {plural(report.events, 'event')}", "dim"),
        )
        return
    screen.line(("BAD   ", "bold red"), (report.session_id, ""))
    for problem in report.problems:
        screen.paragraph((f"      event {problem.seq}: ", "bold"), (problem.what, ""))


@command(app)
async def export(
    settings: Settings,
    *,
    session: SessionArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is standard output.")
    ] = "-",
) -> int:
    """Write a session to a file, or to standard output."""
    async with open_existing_log(settings) as log:
        row = await find_session(log, session)
        if output == "-":
            await _write_lines(log, row.id, Screen(settings).json_line)
            return 0
        with file_errors(output), atomic_write(Path(output)) as file:
            lines = await _write_lines(log, row.id, lambda line: file.writelines((line, b"\n")))
    Screen(settings, stderr=True).paragraph(
        (f"wrote {row.id} to {output}: {plural(lines, 'line')}", "dim")
    )
    return 0


async def _write_lines(log: SessionLog, session_id: str, put: Callable[[bytes], None]) -> int:
    count = 0
    async with aclosing(transfer.export_lines(log, session_id)) as lines:
        async for line in lines:
            put(line)
            count += 1
    return count


@command(app, "import")
async def import_(
    settings: Settings,
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file written by export; - is standard input.")
    ],
    json: JsonOption = False,
) -> int:
    """Store sessions that `log export` wrote."""
    screen = Screen(settings)
    with file_errors(file):
        source = (
            sys.stdin.buffer if file == "-" else await anyio.to_thread.run_sync(open, file, "rb")
        )
    with source:
        async with open_log(settings) as log, aclosing(_read_lines(file, source)) as lines:
            added = await transfer.import_lines(log, lines)
            for session_id in added:
                found = await session_view(log, await log.session(session_id))
                if json:
                    screen.json(found)
                else:
                    screen.line(
                        ("imported ", "green"),
                        (session_id, ""),
                        (f"  {plural(found.events, 'event')}  {found.title or ''}", "dim"),
                    )
    if not added:
        print_note(settings, "nothing new: all of it was here already")
    return 0


async def _read_lines(name: str, file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while True:
        with file_errors(name):
            some = await anyio.to_thread.run_sync(partial(file.readlines, _CHUNK_BYTES))
        if not some:
            return
        for line in some:
            yield line


@command(app)
async def rm(
    settings: Settings,
    *,
    session: SessionArgument,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also delete the sessions forked from it.")
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> int:
    """Delete a session for good."""
    async with open_existing_log(settings) as log:
        row = await find_session(log, session)
        doomed = await _with_forks(log, row) if cascade else [row]
        if not yes and not _confirm(settings, await _confirm_question(log, doomed)):
            return 1
        gone = [await read_footprint(log, item.id) for item in doomed]
        await log.delete(row.id, cascade=cascade)
        await session_files.session_removal(settings, log).remove_files(gone)
    _print_deleted(settings, [item.id for item in doomed], json=json)
    return 0


async def _with_forks(log: SessionLog, session: SessionRow) -> list[SessionRow]:
    """The session and all that begin with its events, however far removed."""
    known = [all_session async for all_session in all_sessions(log.store)]
    doomed = [session]
    for parent in doomed:  # grows as it goes
        doomed += [item for item in known if item.parent_id == parent.id]
    return doomed


async def _confirm_question(log: SessionLog, doomed: list[SessionRow]) -> str:
    lines: list[str] = []
    for session in doomed[:_MAX_LISTED]:
        shown = await session_view(log, session)
        held = f"  (held by {shown.holder})" if shown.holder else ""
        lines.append(f"{shown.id}  {plural(shown.events, 'event')}  {shown.title or ''}{held}")
    if len(doomed) > _MAX_LISTED:
        lines.append(f"and {len(doomed) - _MAX_LISTED} more")
    return "\n".join([*lines, f"Delete {plural(len(doomed), 'session')} for good?"])


@command(app)
async def expire(
    settings: Settings,
    *,
    older_than: Annotated[
        timedelta,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Unchanged for this long: 90m, 12h, 30d, 8w.",
        ),
    ],
    yes: YesOption = False,
    json: JsonOption = False,
) -> int:
    """Delete sessions that have not changed for a time."""
    before = clock.now() - older_than
    async with open_existing_log(settings) as log:
        stale = await log.store.stale(updated_before=to_micros(before), limit=_MAX_EXPIRED)
        question = f"Delete {plural(len(stale), 'session')} not changed since {local_time(before)}?"
        if stale and not yes and not _confirm(settings, question):
            return 1
        expired = await _delete_expired(settings, log, before) if stale else []
    if expired:
        _print_deleted(settings, expired, json=json)
    else:
        print_note(settings, "nothing is that old")
    return 0


async def _delete_expired(settings: Settings, log: SessionLog, before: datetime) -> list[str]:
    # of all: which ones go, is known when they are gone
    footprints = [await read_footprint(log, row.id) async for row in all_sessions(log.store)]
    expired = await log.expire(updated_before=before)
    gone = set(expired)
    await session_files.session_removal(settings, log).remove_files(
        [item for item in footprints if item.session_id in gone]
    )
    return expired


def _confirm(settings: Settings, question: str) -> bool:
    """
    Raises:
        InvalidInput: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        refused = InvalidInput("this deletes for good, and there is no terminal to ask at")
        refused.add_note("--yes says yes")
        raise refused
    notes = Screen(settings, stderr=True)
    *listed, last = question.split("\n")
    for line in listed:
        notes.line((line, ""))
    if typer.confirm(last, err=True):
        return True
    notes.paragraph(("nothing was deleted", "dim"))
    return False


def _print_deleted(settings: Settings, ids: list[str], *, json: bool) -> None:
    screen = Screen(settings)
    for session_id in ids:
        if json:
            screen.json({"deleted": session_id})
        else:
            screen.line(("deleted ", ""), (session_id, ""))
