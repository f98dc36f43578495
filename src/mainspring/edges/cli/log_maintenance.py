"""`mainspring log verify`, `export`, `import`, `rm` and `expire`: operations on whole sessions."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import IO

import anyio
import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.clock import to_micros
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.atomic_files import atomic_write, file_errors
from mainspring.edges.cli.log_view import session_view
from mainspring.edges.cli.printing import Screen, local_time, plural, print_note
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.log import transfer
from mainspring.log import verify as verifying
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, all_sessions
from mainspring.log.verify import Problem, VerifyReport
from mainspring.runtime.session.session_summary import read_footprint
from mainspring.wiring.session_files import remove_session_files
from mainspring.wiring.stores import open_log

_CHUNK_BYTES = 1 << 20
_MAX_LISTED = 10
_MAX_EXPIRED = 100_000


class VerifyView(Struct, frozen=True, kw_only=True):
    session_id: str
    ok: bool
    events: int
    problems: tuple[Problem, ...]


async def verify(settings: Settings, *, id_or_part: str | None, json: bool) -> int:
    """One session, or all of them for `None`."""
    screen = Screen(settings)
    checked = spoiled = 0
    async with open_existing_log(settings) as log:
        if id_or_part is None:
            ids = [session.id async for session in all_sessions(log.store)]
        else:
            ids = [(await find_session(log, id_or_part)).id]
        for session_id in ids:
            report = await verifying.verify(log, session_id)
            checked += 1
            spoiled += not report.ok
            if json:
                screen.json(_report_view(report))
            else:
                _print_report(screen, report)
    if id_or_part is None and not json:
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


async def export(settings: Settings, *, id_or_part: str, output: str) -> int:
    async with open_existing_log(settings) as log:
        session = await find_session(log, id_or_part)
        if output == "-":
            await _write_lines(log, session.id, Screen(settings).json_line)
            return 0
        with file_errors(output), atomic_write(Path(output)) as file:
            lines = await _write_lines(log, session.id, lambda line: file.writelines((line, b"\n")))
    Screen(settings, stderr=True).paragraph(
        (f"wrote {session.id} to {output}: {plural(lines, 'line')}", "dim")
    )
    return 0


async def _write_lines(log: SessionLog, session_id: str, put: Callable[[bytes], None]) -> int:
    count = 0
    async with aclosing(transfer.export_lines(log, session_id)) as lines:
        async for line in lines:
            put(line)
            count += 1
    return count


async def import_(settings: Settings, *, name: str, json: bool) -> int:
    screen = Screen(settings)
    with file_errors(name):
        file = sys.stdin.buffer if name == "-" else await anyio.to_thread.run_sync(open, name, "rb")
    with file:
        async with open_log(settings) as log, aclosing(_read_lines(name, file)) as lines:
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


async def rm(settings: Settings, *, id_or_part: str, cascade: bool, yes: bool, json: bool) -> int:
    async with open_existing_log(settings) as log:
        session = await find_session(log, id_or_part)
        doomed = await _with_forks(log, session) if cascade else [session]
        if not yes and not _confirm(settings, await _confirm_question(log, doomed)):
            return 1
        gone = [await read_footprint(log, item.id) for item in doomed]
        await log.delete(session.id, cascade=cascade)
        await remove_session_files(settings, log, gone)
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


async def expire(settings: Settings, *, older_than: timedelta, yes: bool, json: bool) -> int:
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
    known = [await read_footprint(log, session.id) async for session in all_sessions(log.store)]
    expired = await log.expire(updated_before=before)
    gone = set(expired)
    await remove_session_files(settings, log, [item for item in known if item.session_id in gone])
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
