"""`mainspring log ls`, `show`, `follow` and `search`. Nothing here changes a session."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, TypeAlias

import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.clock import from_micros
from mainspring.core.envelope import PAYLOAD_TYPES, Event, encode_line
from mainspring.core.events import SessionCreated, SessionForked, UserMessage
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import CountOption, JsonOption, SessionArgument
from mainspring.edges.cli.render.event_summary import (
    agent_label,
    short_id,
    summarize_event,
    truncate,
)
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    age_text,
    local_time,
    pad,
    print_note,
    short_time,
)
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.log import search as searching
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.runtime.skills.substitution import typed_text
from mainspring.wiring.stores import has_store

_PAGE_SIZE = 500  # events read at once
_TITLE_EVENTS = 20
"""The events to search for the first message of a session without a title."""
_WIDE_COLUMNS = 110  # a terminal from which times are shown in full
_STYLES = {
    "user": "green",
    "system": "green",
    "agent": "cyan",
    "session": "blue",
    "span": "dim",
    "workflow_run": "blue",
}
_TYPE_WIDTH = 24  # columns: the longest usual type


app = command_group()
"""`log_maintenance` adds the commands that change something."""

AfterOption: TypeAlias = Annotated[
    int, typer.Option(help="Only events after this number.", min=0, metavar="N")
]


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as `--json` prints it."""

    id: str
    created: datetime
    updated: datetime
    events: int
    holder: str | None
    parent: str | None
    parent_seq: int
    thread_id: str
    title: str | None


@command(app)
async def ls(
    settings: Settings,
    *,
    limit: CountOption = 20,
    json: JsonOption = False,
) -> int:
    """List sessions, newest first."""
    screen = Screen(settings)
    views: list[SessionView] = []
    if has_store(settings):
        async with open_existing_log(settings) as log:
            sessions = await log.sessions(limit=limit + 1)
            views = [await session_view(log, session) for session in sessions]
    for view in views[:limit] if json else ():
        screen.json(view)
    if json:
        return 0
    notes = Screen(settings, stderr=True)
    if not views:
        hint = "`mainspring run 'what to do'` starts one; `mainspring log import` imports others"
        notes.paragraph((f"no sessions yet in {settings.store_label}", ""))
        notes.paragraph((hint, "dim"))
        return 0
    screen.table(*_session_table(screen, views[:limit]))
    if len(views) > limit:
        notes.paragraph(
            (f"there are more sessions; --limit {limit * 5} shows up to {limit * 5}", "dim")
        )
    return 0


async def session_view(log: SessionLog, session: SessionRow) -> SessionView:
    return SessionView(
        id=session.id,
        created=from_micros(session.created),
        updated=from_micros(session.updated),
        events=session.head.seq,
        holder=session.owner,
        parent=session.parent_id,
        parent_seq=session.parent_seq,
        thread_id=session.thread_id,
        title=await _title(log, session),
    )


async def _title(log: SessionLog, session: SessionRow) -> str | None:
    """The title of a session, else its first message, else its agent."""
    opening = await log.read(session.id, after=session.parent_seq, limit=_TITLE_EVENTS)
    first = opening[0].payload if opening else None
    if isinstance(first, SessionCreated | SessionForked) and first.title:
        return first.title
    for event in opening:
        if isinstance(event.payload, UserMessage):
            return truncate(typed_text(event.payload.content)) or None
    return (agent_label(first) or None) if isinstance(first, SessionCreated) else None


def _session_table(
    screen: Screen, views: list[SessionView]
) -> tuple[list[str], list[list[StyledText]]]:
    moment = clock.now()
    row = _narrow_row if screen.width is not None and screen.width < _WIDE_COLUMNS else _wide_row
    heads = ["SESSION", "CREATED", "CHANGED", "EVENTS", "HELD BY", "FORK OF", "TITLE"]
    return heads, [row(view, moment) for view in views]


def _wide_row(view: SessionView, moment: datetime) -> list[StyledText]:
    return [
        (view.id, "bold"),
        (local_time(view.created), ""),
        (age_text(moment - view.updated), ""),
        (f"{view.events:>6}", ""),
        (view.holder or "", "yellow"),
        (f"{view.parent} at {view.parent_seq}" if view.parent else "", "dim"),
        (view.title or "", ""),
    ]


def _narrow_row(view: SessionView, moment: datetime) -> list[StyledText]:
    return [
        (short_id(view.id), "bold"),
        (short_time(view.created, moment), ""),
        (age_text(moment - view.updated), ""),
        (f"{view.events:>6}", ""),
        ((view.holder or "")[-12:], "yellow"),
        (short_id(view.parent) if view.parent else "", "dim"),
        (view.title or "", ""),
    ]


class _EventPrinter:
    """Prints the events of a session, and the date when it changes."""

    def __init__(self, screen: Screen, main_thread: str, *, json: bool) -> None:
        self._screen = screen
        self._main_thread = main_thread
        self._json = json
        self._day = ""

    def print(self, event: Event) -> None:
        if self._json:
            self._screen.json_line(encode_line(event))
            return
        day, time = event.time.astimezone().strftime("%Y-%m-%d %H:%M:%S").split()
        if self._screen.width is None:
            time = f"{day} {time}"
        elif day != self._day:
            self._day = day
            self._screen.line((day, "dim"))
        thread = "" if event.thread_id == self._main_thread else f"[{short_id(event.thread_id)}] "
        self._screen.line(
            (f"{event.seq:>5}  ", "bold"),
            (f"{time}  ", "dim"),
            pad((event.type, _event_style(event)), _TYPE_WIDTH),
            ("  ", ""),
            (thread, "magenta"),
            (summarize_event(event), "red" if _is_failure(event) else ""),
        )


def _event_style(event: Event) -> str:
    return "red" if _is_failure(event) else _STYLES.get(event.type.partition(".")[0], "yellow")


def _is_failure(event: Event) -> bool:
    return event.type.endswith(".error") or getattr(event.payload, "is_error", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events to show."""

    after: AfterOption = 0
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", help="Only events of this type. Can be repeated."),
    ] = None
    thread: Annotated[str | None, typer.Option(help="Only events of this thread.")] = None
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", help="Only the last N events.", min=1, metavar="N")
    ] = None


@command(app)
async def show(
    settings: Settings,
    *,
    session: SessionArgument,
    event_filter: EventFilter,
    json: JsonOption = False,
) -> int:
    """Show a session's events, one per line."""
    printed = 0
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        printer = _EventPrinter(Screen(settings), row.thread_id, json=json)
        async with aclosing(_select_events(log, row.id, event_filter)) as events:
            async for event in events:
                printer.print(event)
                printed += 1
    if not printed:
        _print_no_match(Screen(settings, stderr=True), event_filter.types)
    return 0


async def _select_events(
    log: SessionLog, session_id: str, selection: EventFilter
) -> AsyncGenerator[Event, None]:
    if selection.tail is None:
        events = _page_events(log, session_id, selection)
    else:
        events = _last_events(log, session_id, selection, selection.tail)
    async with aclosing(events):
        async for event in events:
            yield event


async def _page_events(
    log: SessionLog, session_id: str, selection: EventFilter
) -> AsyncGenerator[Event, None]:
    after = selection.after
    threads = [selection.thread] if selection.thread else None
    while page := await log.read(
        session_id, after=after, types=selection.types, threads=threads, limit=_PAGE_SIZE
    ):
        for event in page:
            yield event
        after = page[-1].seq


async def _last_events(
    log: SessionLog, session_id: str, selection: EventFilter, count: int
) -> AsyncGenerator[Event, None]:
    if selection.types is None and selection.thread is None:
        events = await log.tail(session_id, count)
    else:
        events = deque(
            [page_event async for page_event in _page_events(log, session_id, selection)],
            maxlen=count,
        )
    for event in events:
        if event.seq > selection.after:
            yield event


def _print_no_match(notes: Screen, types: list[str] | None) -> None:
    notes.paragraph(("no such events", "dim"))
    for kind in types or ():
        if kind not in PAYLOAD_TYPES:
            similar = get_close_matches(kind, PAYLOAD_TYPES, n=3)
            hint = f"; did you mean {', '.join(similar)}?" if similar else ""
            notes.paragraph((f"hint: {kind} is not a known type of event{hint}", "dim"))


@command(app)
async def follow(
    settings: Settings,
    *,
    session: SessionArgument,
    after: AfterOption = 0,
    json: JsonOption = False,
) -> int:
    """Show events, then new ones as they happen."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        printer = _EventPrinter(Screen(settings), row.thread_id, json=json)
        async with aclosing(log.follow(row.id, after=after)) as events:
            async for event in events:
                printer.print(event)
    return 0


@command(app)
async def search(
    settings: Settings,
    *,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words that must all occur.")],
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Search only this session.")
    ] = None,
    limit: CountOption = 20,
    json: JsonOption = False,
) -> int:
    """Search the text of sessions."""
    screen = Screen(settings)
    async with open_existing_log(settings) as log:
        within = None if session is None else (await find_session(settings, log, session)).id
        hits = await searching.search(log, query, session_id=within, limit=limit)
    for hit in hits:
        if json:
            screen.json(hit)
        else:
            name = hit.session_id if screen.width is None else short_id(hit.session_id)
            screen.line((name, "bold"), (f" {hit.seq:>5}  ", "dim"), (truncate(hit.snippet), ""))
    if not hits:
        print_note(settings, f"no text contains all of: {query}")
    return 0
