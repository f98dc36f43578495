"""What `mainspring log` shows: list, events, search. Nothing here changes a session."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from difflib import get_close_matches

import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.clock import from_micros
from mainspring.core.envelope import PAYLOAD_TYPES, Event, encode_line
from mainspring.core.events import UserMessage
from mainspring.core.facts import SessionCreated, SessionForked
from mainspring.edges.cli.gist import agent, cut, gist, short
from mainspring.edges.cli.render import Part, Screen, ago, brief, minute, padded
from mainspring.edges.cli.sessions import existing_log, find_session
from mainspring.log import search as searching
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.runtime.skills.typed import as_typed
from mainspring.wiring.stores import has_store

_PAGE = 500
_OPENING = 20
"""Events in which a session without a title is looked at for what it is about."""
_WIDE = 110
_STYLES = {
    "user": "green",
    "system": "green",
    "agent": "cyan",
    "session": "blue",
    "span": "dim",
    "workflow_run": "blue",
}
_TYPE_WIDTH = 24


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


async def ls(settings: Settings, *, limit: int, json: bool) -> int:
    screen = Screen(settings)
    views: list[SessionView] = []
    if has_store(settings):
        async with existing_log(settings) as log:
            found = await log.sessions(limit=limit + 1)
            views = [await view(log, session) for session in found]
    for each in views[:limit] if json else ():
        screen.json(msgspec.json.encode(each))
    if json:
        return 0
    notes = Screen(settings, stderr=True)
    if not views:
        notes.whole((f"no sessions yet in {settings.place}", ""))
        notes.whole(("an agent's first run makes one; `mainspring log import` takes others", "dim"))
        return 0
    screen.table(*_listing(screen, views[:limit]))
    if len(views) > limit:
        notes.whole((f"there are more; --limit {limit * 5} shows up to {limit * 5}", "dim"))
    return 0


async def view(log: SessionLog, session: SessionRow) -> SessionView:
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
    """What it was called or, failing that, the first thing that was asked of it."""
    opening = await log.read(session.id, after=session.parent_seq, limit=_OPENING)
    first = opening[0].payload if opening else None
    if isinstance(first, SessionCreated | SessionForked) and first.title:
        return first.title
    for event in opening:
        if isinstance(event.payload, UserMessage):
            return cut(as_typed(event.payload.content)) or None
    return (agent(first) or None) if isinstance(first, SessionCreated) else None


def _listing(screen: Screen, views: list[SessionView]) -> tuple[list[str], list[list[Part]]]:
    moment = clock.now()
    row = _narrow_row if screen.width is not None and screen.width < _WIDE else _wide_row
    heads = ["SESSION", "CREATED", "CHANGED", "EVENTS", "HELD BY", "FORK OF", "TITLE"]
    return heads, [row(each, moment) for each in views]


def _wide_row(each: SessionView, moment: datetime) -> list[Part]:
    return [
        (each.id, "bold"),
        (minute(each.created), ""),
        (ago(moment - each.updated), ""),
        (f"{each.events:>6}", ""),
        (each.holder or "", "yellow"),
        (f"{each.parent} at {each.parent_seq}" if each.parent else "", "dim"),
        (each.title or "", ""),
    ]


def _narrow_row(each: SessionView, moment: datetime) -> list[Part]:
    return [
        (short(each.id), "bold"),
        (brief(each.created, moment), ""),
        (ago(moment - each.updated), ""),
        (f"{each.events:>6}", ""),
        ((each.holder or "")[-12:], "yellow"),
        (short(each.parent) if each.parent else "", "dim"),
        (each.title or "", ""),
    ]


class _Printer:
    """Prints events of one session, and the day when it changes."""

    def __init__(self, screen: Screen, main_thread: str, *, json: bool) -> None:
        self._screen = screen
        self._main_thread = main_thread
        self._json = json
        self._day = ""

    def print(self, event: Event) -> None:
        if self._json:
            self._screen.json(encode_line(event))
            return
        day, time = event.time.astimezone().strftime("%Y-%m-%d %H:%M:%S").split()
        if self._screen.width is None:
            time = f"{day} {time}"
        elif day != self._day:
            self._day = day
            self._screen.line((day, "dim"))
        thread = "" if event.thread_id == self._main_thread else f"[{short(event.thread_id)}] "
        self._screen.line(
            (f"{event.seq:>5}  ", "bold"),
            (f"{time}  ", "dim"),
            padded((event.type, _style(event)), _TYPE_WIDTH),
            ("  ", ""),
            (thread, "magenta"),
            (gist(event), "red" if _is_failure(event) else ""),
        )


def _style(event: Event) -> str:
    return "red" if _is_failure(event) else _STYLES.get(event.type.partition(".")[0], "yellow")


def _is_failure(event: Event) -> bool:
    return event.type.endswith(".error") or getattr(event.payload, "is_error", False)


class Wanted(Struct, frozen=True, kw_only=True):
    """Which events to show."""

    after: int
    types: list[str] | None
    thread: str | None
    tail: int | None


async def show(settings: Settings, *, meant: str, wanted: Wanted, json: bool) -> int:
    printed = 0
    async with existing_log(settings) as log:
        session = await find_session(log, meant)
        printer = _Printer(Screen(settings), session.thread_id, json=json)
        async with aclosing(_chosen(log, session.id, wanted)) as events:
            async for event in events:
                printer.print(event)
                printed += 1
    if not printed:
        _say_nothing_matched(Screen(settings, stderr=True), wanted.types)
    return 0


async def _chosen(log: SessionLog, session_id: str, wanted: Wanted) -> AsyncGenerator[Event, None]:
    if wanted.tail is None:
        found = _paged(log, session_id, wanted)
    else:
        found = _last(log, session_id, wanted, wanted.tail)
    async with aclosing(found):
        async for event in found:
            yield event


async def _paged(log: SessionLog, session_id: str, wanted: Wanted) -> AsyncGenerator[Event, None]:
    after = wanted.after
    threads = [wanted.thread] if wanted.thread else None
    while page := await log.read(
        session_id, after=after, types=wanted.types, threads=threads, limit=_PAGE
    ):
        for event in page:
            yield event
        after = page[-1].seq


async def _last(
    log: SessionLog, session_id: str, wanted: Wanted, count: int
) -> AsyncGenerator[Event, None]:
    if wanted.types is None and wanted.thread is None:
        found = await log.tail(session_id, count)
    else:
        found = deque([each async for each in _paged(log, session_id, wanted)], maxlen=count)
    for event in found:
        if event.seq > wanted.after:
            yield event


def _say_nothing_matched(notes: Screen, types: list[str] | None) -> None:
    notes.whole(("no such events", "dim"))
    for kind in types or ():
        if kind not in PAYLOAD_TYPES:
            near = get_close_matches(kind, PAYLOAD_TYPES, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            notes.whole((f"hint: {kind} is no type of event that we know{hint}", "dim"))


async def follow(settings: Settings, *, meant: str, after: int, json: bool) -> int:
    async with existing_log(settings) as log:
        session = await find_session(log, meant)
        printer = _Printer(Screen(settings), session.thread_id, json=json)
        async with aclosing(log.follow(session.id, after=after)) as events:
            async for event in events:
                printer.print(event)
    return 0


async def search(
    settings: Settings, *, query: str, session: str | None, limit: int, json: bool
) -> int:
    screen = Screen(settings)
    async with existing_log(settings) as log:
        within = None if session is None else (await find_session(log, session)).id
        hits = await searching.search(log, query, session_id=within, limit=limit)
    for hit in hits:
        if json:
            screen.json(msgspec.json.encode(hit))
        else:
            name = hit.session_id if screen.width is None else short(hit.session_id)
            screen.line((name, "bold"), (f" {hit.seq:>5}  ", "dim"), (cut(hit.snippet), ""))
    if not hits:
        Screen(settings, stderr=True).whole((f"nothing said has all of: {query}", "dim"))
    return 0
