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
import msgspec
import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.clock import to_micros
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.options import (
    JsonOption,
    OutputOption,
    SessionArgument,
    YesOption,
    parse_duration,
)
from mainspring.edges.cli.render.printing import (
    Screen,
    confirm,
    local_time,
    plural,
    print_note,
    print_result,
)
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.edges.cli.sessions.log import app, session_view
from mainspring.files.atomic_file import atomic_write, file_errors
from mainspring.log import container, transfer
from mainspring.log import verify as verifying
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, all_sessions
from mainspring.log.verify import Problem, VerifyReport
from mainspring.runtime.session.session_summary import read_footprint
from mainspring.wiring.stores import open_log

if TYPE_CHECKING:
    from mainspring.wiring import session_files
else:  # it imports the sandbox
    session_files = LazyModule("mainspring.wiring.session_files")

_CHUNK_BYTES = 1 << 20  # of lines read at once
_MAX_LISTED = 10  # sessions named before a count
_MAX_EXPIRED = 100_000  # sessions of one command; it can be repeated


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
    every: Annotated[bool, typer.Option("--all", help="Verify every session.")] = False,
    json: JsonOption = False,
) -> int:
    """Check that no log was changed after it was written."""
    if (session is None) != every:
        raise typer.BadParameter("name a session, or use --all", param_hint="SESSION")
    screen = Screen(settings)
    count = bad = 0
    async with open_existing_log(settings) as log:
        if session is None:
            ids = [session.id async for session in all_sessions(log.store)]
        else:
            ids = [(await find_session(settings, log, session)).id]
        for session_id in ids:
            report = await verifying.verify(log, session_id)
            count += 1
            bad += not report.ok
            if json:
                screen.json(msgspec.convert(report, VerifyView, from_attributes=True))
            else:
                _print_report(screen, report)
    if session is None and not json:
        screen.line((f"{plural(count, 'session')} checked, {bad} with problems", "bold"))
    return 1 if bad else 0


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
    output: OutputOption = "-",
) -> int:
    """Write a session to a file, or to standard output."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
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
    """Import sessions that `log export` wrote."""
    with file_errors(file):
        source = (
            sys.stdin.buffer if file == "-" else await anyio.to_thread.run_sync(open, file, "rb")
        )
    with source:
        async with open_log(settings) as log, aclosing(_read_lines(file, source)) as lines:
            added = await container.import_lines(log, lines)
            for session_id in added:
                view = await session_view(log, await log.session(session_id))
                events = f"  {plural(view.events, 'event')}  {view.title or ''}"
                text = (("imported ", "green"), (session_id, ""), (events, "dim"))
                print_result(settings, view, *text, json=json)
    if not added:
        print_note(settings, "nothing new: everything was imported before")
    return 0


async def _read_lines(name: str, file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while True:
        with file_errors(name):
            lines = await anyio.to_thread.run_sync(partial(file.readlines, _CHUNK_BYTES))
        if not lines:
            return
        for line in lines:
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
    """Delete a session permanently."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        sessions = await _with_forks(log, row) if cascade else [row]
        if not yes:
            await _list_sessions(settings, log, sessions)
            if not _confirm(settings, f"Delete {plural(len(sessions), 'session')} permanently?"):
                return 1
        footprints = [await read_footprint(log, item.id) for item in sessions]
        await log.delete(row.id, cascade=cascade)
        await session_files.session_removal(settings, log).remove_files(footprints)
    _print_deleted(settings, [item.id for item in sessions], json=json)
    return 0


async def _with_forks(log: SessionLog, session: SessionRow) -> list[SessionRow]:
    """The session and all its forks, direct and indirect."""
    rows = [row async for row in all_sessions(log.store)]
    forks = [session]
    for parent in forks:  # grows during the loop
        forks += [row for row in rows if row.parent_id == parent.id]
    return forks


async def _list_sessions(settings: Settings, log: SessionLog, sessions: list[SessionRow]) -> None:
    """Print the sessions that the user is asked about."""
    notes = Screen(settings, stderr=True)
    for session in sessions[:_MAX_LISTED] if sys.stdin.isatty() else ():
        view = await session_view(log, session)
        holder = f"  (held by {view.holder})" if view.holder else ""
        line = f"{view.id}  {plural(view.events, 'event')}  {view.title or ''}{holder}"
        notes.line((line, ""))
    if len(sessions) > _MAX_LISTED:
        notes.line((f"and {len(sessions) - _MAX_LISTED} more", ""))


@command(app)
async def expire(
    settings: Settings,
    *,
    older_than: Annotated[
        timedelta,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Delete sessions unchanged for this long, such as 90m, 12h, 30d or 8w.",
        ),
    ],
    yes: YesOption = False,
    json: JsonOption = False,
) -> int:
    """Delete sessions that have not changed for some time."""
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
    # of all sessions: `expire` returns those that it deleted when they are gone
    footprints = [await read_footprint(log, row.id) async for row in all_sessions(log.store)]
    expired = await log.expire(updated_before=before)
    deleted = {*expired}
    await session_files.session_removal(settings, log).remove_files(
        [item for item in footprints if item.session_id in deleted]
    )
    return expired


def _confirm(settings: Settings, question: str) -> bool:
    refusal = "this cannot be undone, and there is no terminal for a confirmation"
    return confirm(settings, question, refusal=refusal, declined="nothing was deleted")


def _print_deleted(settings: Settings, ids: list[str], *, json: bool) -> None:
    for session_id in ids:
        text = (("deleted ", ""), (session_id, ""))
        print_result(settings, {"deleted": session_id}, *text, json=json)
