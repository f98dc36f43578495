"""`mainspring sessions import`."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, MainspringError, SessionNotFound
from mainspring.core.sender import local_user
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.event_summary import short_id, truncate
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    age_text,
    byte_size,
    plural,
    print_list,
    print_note,
)
from mainspring.error_table import with_hints
from mainspring.log.session_log import SessionLog
from mainspring.runtime.import_sessions.import_candidates import (
    DEFAULT_FOLDERS,
    ImportCandidate,
    SessionReaders,
    find_candidates,
)
from mainspring.runtime.import_sessions.import_plan import session_id_of
from mainspring.runtime.import_sessions.import_store import ImportResult, store_session
from mainspring.runtime.import_sessions.source_session import Format, SourceSession
from mainspring.wiring.stores import has_store, open_log

_MAX_FINDINGS = 5  # shown for one file
_STYLES = {"new": "green", "grown": "green", "forked": "yellow", "unchanged": "dim"}
_STATUS_TEXT = {"new": "imported", "grown": "grown", "forked": "forked", "unchanged": "unchanged"}


class ImportView(Struct, frozen=True, kw_only=True):
    """An imported session as `--json` prints it."""

    path: str
    format: str
    source_session_id: str
    session_id: str | None
    outcome: str
    """`new`, `grown`, `forked`, `unchanged`, `empty` or `failed`."""
    events: int = 0
    title: str | None = None
    folder: str | None = None
    """The folder that the other tool worked in."""
    left_out: dict[str, int] = {}
    findings: tuple[str, ...] = ()
    error: str | None = None


class CandidateView(Struct, frozen=True, kw_only=True):
    """A session that could be imported, as `--list --json` prints it."""

    path: str
    format: str
    source_session_id: str
    session_id: str
    changed: datetime
    bytes: int
    is_imported: bool


async def import_(
    settings: Settings,
    *,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Session files, or folders of them."),
    ] = None,
    form: Annotated[
        Literal["claude-code", "codex", "pi", "openhands"] | None,
        typer.Option("--from", help="The tool that wrote it. [default: detected from the content]"),
    ] = None,
    is_list: Annotated[
        bool, typer.Option("--list", help="Only show which sessions could be imported.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Import sessions of other tools. Sessions of Claude Code, Codex, pi and OpenHands can be
    continued here. Importing again adds only new messages."""
    if is_list:
        return await _list_importable(settings, paths or [], form, json=json)
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    if not paths:
        hint = "`mainspring sessions import --list` shows what is there"
        raise with_hints(InvalidInput("name the files or folders to import"), hint)
    candidates = await _find_candidates([Path(settings.folder, path) for path in paths], form)
    if not candidates:
        raise InvalidInput(f"found no sessions of other tools in {', '.join(paths)}")
    outcomes: Counter[str] = Counter()
    readers = SessionReaders()
    async with open_log(settings) as log:
        for item in candidates:
            view = await _import_one(settings, log, readers, item)
            outcomes[view.outcome] += 1
            if json:
                screen.json(view)
            else:
                _print_import(
                    screen, notes, view, is_only=len(candidates) == 1, here=settings.folder
                )
    if not json:
        _print_totals(notes, outcomes, len(candidates))
    return 1 if outcomes["failed"] else 0


async def _find_candidates(paths: list[Path], form: Format | None) -> list[ImportCandidate]:
    def find() -> list[ImportCandidate]:
        return [item for path in paths for item in find_candidates(path.resolve(), form)]

    try:
        return await to_thread.run_sync(find)
    except OSError as error:
        raise InvalidInput(f"{error.filename}: {error.strerror or error}") from error


async def _import_one(
    settings: Settings, log: SessionLog, readers: SessionReaders, candidate: ImportCandidate
) -> ImportView:
    """Import one session. Its errors do not affect the others."""
    try:
        source = await to_thread.run_sync(readers.read, candidate.path, candidate.format)
        if source.is_empty:
            return _import_view(candidate, source, None)
        importer = local_user(settings.user)
        imported_session = await store_session(log, source, now=clock.now(), importer=importer)
    except (MainspringError, OSError) as error:
        return ImportView(
            path=str(candidate.path),
            format=candidate.format,
            source_session_id=candidate.source_id,
            session_id=None,
            outcome="failed",
            error=str(error),
        )
    return _import_view(candidate, source, imported_session)


def _import_view(
    candidate: ImportCandidate, source: SourceSession, result: ImportResult | None
) -> ImportView:
    return ImportView(
        path=str(candidate.path),
        format=candidate.format,
        source_session_id=source.id,
        session_id=None if result is None else result.session_id,
        outcome="empty" if result is None else result.import_status,
        events=0 if result is None else result.events,
        title=source.title,
        folder=source.metadata.get("cwd"),
        left_out=dict(source.left_out),
        findings=tuple(map(str, source.findings)),
    )


def _print_import(
    screen: Screen, notes: Screen, view: ImportView, *, is_only: bool, here: str
) -> None:
    if view.error is not None:
        notes.paragraph((f"error: {view.error}", "bold red"))
        return
    if view.session_id is None:
        if is_only:
            notes.paragraph((f"{view.path} has no messages: nothing was imported", "yellow"))
        return
    name = view.session_id if screen.width is None else short_id(view.session_id)
    screen.line(
        (f"{_STATUS_TEXT[view.outcome]:<10}", _STYLES[view.outcome]),
        (name, "bold"),
        (f"  {view.format}  {plural(view.events, 'event')}  {truncate(view.title or '')}", "dim"),
    )
    for finding in view.findings[:_MAX_FINDINGS]:
        notes.paragraph((f"warning: {finding}", "yellow"))
    if (remaining := len(view.findings) - _MAX_FINDINGS) > 0:
        notes.paragraph((f"and {remaining} more; --json lists all of them", "dim"))
    if is_only:
        _print_details(notes, view, name, here=here)


def _print_details(notes: Screen, view: ImportView, name: str, *, here: str) -> None:
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(view.left_out.items()) if count)
    if kinds:
        notes.paragraph((f"not part of the conversation, left out: {kinds}", "dim"))
    if view.outcome == "forked":
        text = "the session here is no longer the beginning of the file: this is a fork with"
        notes.paragraph((f"{text} what the file has", "dim"))
    if view.folder is not None and view.folder != here:
        hint = f"it worked in {view.folder}: go there first to continue with its files"
        notes.paragraph((hint, "dim"))
    notes.paragraph((f"continue: mainspring run --resume {name} 'what to do'", "dim"))


def _print_totals(notes: Screen, outcomes: Counter[str], count: int) -> None:
    if count > 1:
        totals = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        notes.paragraph((f"{plural(count, 'session')}: {totals}", "bold"))


async def _list_importable(
    settings: Settings, paths: list[str], form: Format | None, *, json: bool
) -> int:
    defaults = [Path(settings.home, item) for item in DEFAULT_FOLDERS]
    places = [Path(settings.folder, path) for path in paths] or [p for p in defaults if p.is_dir()]
    candidates = await _find_candidates(places, form)
    async with AsyncExitStack() as stack:
        has_log = has_store(settings)
        log = await stack.enter_async_context(open_log(settings)) if has_log else None
        views = [await _candidate_view(log, item) for item in candidates]
    now = clock.now()
    searched = ", ".join(map(str, places)) or ", ".join(f"~/{item}" for item in DEFAULT_FOLDERS)
    print_list(
        settings,
        views,
        json=json,
        heads=["FORMAT", "SESSION", "CHANGED", "SIZE", "IMPORTED", "PATH"],
        row=lambda view: _candidate_row(view, now),
        empty=f"no sessions of other tools in {searched}",
    )
    if views and not json:
        print_note(settings, "`mainspring sessions import PATH` imports one, or all of a folder")
    return 0


async def _candidate_view(log: SessionLog | None, candidate: ImportCandidate) -> CandidateView:
    session_id = session_id_of(candidate.format, candidate.source_id)
    return CandidateView(
        path=str(candidate.path),
        format=candidate.format,
        source_session_id=candidate.source_id,
        session_id=session_id,
        changed=candidate.changed,
        bytes=candidate.bytes,
        is_imported=log is not None and await _exists(log, session_id),
    )


async def _exists(log: SessionLog, session_id: str) -> bool:
    try:
        await log.session(session_id)
    except SessionNotFound:
        return False
    return True


def _candidate_row(view: CandidateView, now: datetime) -> list[StyledText]:
    return [
        (view.format, "bold"),
        (view.source_session_id, ""),
        (age_text(now - view.changed), ""),
        (f"{byte_size(view.bytes):>9}", ""),
        ("yes" if view.is_imported else "", "green"),
        (view.path, "dim"),
    ]
