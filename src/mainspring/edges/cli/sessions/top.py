"""`mainspring top`: shows all sessions that are running or waiting; attach to one, answer it, or
stop it."""

from __future__ import annotations

import sys
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import anyio
import typer
from msgspec import structs

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import MainspringError
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.event_summary import short_id, truncate
from mainspring.edges.cli.render.printing import Screen, StyledText, age_text, dollars, print_list
from mainspring.edges.cli.render.subagent_tree import SubagentTree
from mainspring.edges.cli.session_lookup import open_existing_log
from mainspring.edges.cli.sessions.session import cancel, session_view
from mainspring.log.session_log import SessionLog
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.activity_line import read_lines
from mainspring.runtime.session.session_summary import SessionSummary, summarize_session
from mainspring.wiring.stores import has_store

if TYPE_CHECKING:
    from mainspring.edges.cli.render import renderer
    from mainspring.edges.cli.run import run_command, session_runner
    from mainspring.edges.cli.sessions import top_screen
else:
    renderer = LazyModule("mainspring.edges.cli.render.renderer")
    run_command = LazyModule("mainspring.edges.cli.run.run_command")
    session_runner = LazyModule("mainspring.edges.cli.run.session_runner")
    top_screen = LazyModule(
        "mainspring.edges.cli.sessions.top_screen"
    )  # a full screen is slow to import

_ACTIVE = ("running", "unfinished", "requires_action")
_MAX_SESSIONS = 500
"""Only the newest; older ones rarely run."""
HEADS = ("SESSION", "STATUS", "TURNS", "COST", "CHANGED", "AGENT", "NOW", "TITLE")
_LOCAL_ORIGINS = ("user", "import")
TopAction: TypeAlias = Literal["attach", "stop", "quit"]


async def top(
    settings: Settings,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the list and exit.")] = False,
    json: JsonOption = False,
) -> int:
    """Show sessions that are running or waiting. Enter attaches, s stops, q leaves."""
    if not has_store(settings):
        return _print_once(settings, [], json=json)
    if once or json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        async with open_existing_log(settings) as log:
            return _print_once(settings, await ActiveSessions(log).read(), json=json)
    selected: str | None = None
    while True:
        async with open_existing_log(settings) as log:
            action, selected = await top_screen.show(ActiveSessions(log), selected)
        if action == "quit" or selected is None:
            return 0
        try:
            await _perform(settings, action, selected)
        except MainspringError as error:
            Screen(settings, stderr=True).paragraph((f"error: {error}", "bold red"))


async def _perform(settings: Settings, action: TopAction, session_id: str) -> None:
    if action == "stop":
        await cancel(settings, session=session_id)
        return
    async with open_existing_log(settings) as log:
        summary = await summarize_session(log, await log.session(session_id))
        if summary.status == "running":
            return await _follow(settings, log, session_id)
    notes = Screen(settings, stderr=True)
    if summary.origin.type not in _LOCAL_ORIGINS:
        notes.paragraph(("the service runs this session: `mainspring approvals` answers it", ""))
        return None
    async with session_runner.open_session_runner(settings, RunOptions(), session_id) as runner:
        if runner.session is not None:
            await run_command.run_attended(
                settings, runner.session, own=set(), notices=runner.notices
            )
    return None


async def _follow(settings: Settings, log: SessionLog, session_id: str) -> None:
    """Show the events of a session until its run ends, or until Ctrl-C."""
    row = await log.session(session_id)
    tree = SubagentTree.of(await log.read(session_id), row.thread_id)
    output = renderer.TerminalRenderer(settings, is_live=False, subagents=tree)
    output.note(f"session {short_id(session_id)} runs in another process; Ctrl-C goes back")
    try:
        async with aclosing(log.follow(session_id, after=row.head.seq)) as events:
            async for event in events:
                output.event(event)
                if event.type == "session.status_idle" and event.thread_id == row.thread_id:
                    break
    finally:
        output.close()


def _print_once(settings: Settings, summaries: list[SessionSummary], *, json: bool) -> int:
    if json:
        for summary in summaries:
            Screen(settings).json(session_view(summary))
        return 0
    return print_list(
        settings,
        summaries,
        json=False,
        heads=HEADS,
        row=session_cells,
        empty="no session is running or waiting",
    )


def session_cells(summary: SessionSummary) -> list[StyledText]:
    style = "bold yellow" if summary.status == "requires_action" else "green"
    return [
        (short_id(summary.id), "bold"),
        (summary.status.replace("_", " "), style),
        (f"{summary.turns:>5}", ""),
        (dollars(summary.cost_usd), ""),
        (age_text(clock.now() - summary.updated), ""),
        (summary.agent or "", ""),
        (truncate(summary.activity), ""),
        (truncate(summary.title or ""), ""),
    ]


@dataclass(slots=True)
class ActiveSessions:
    """The sessions that run or wait. Which ones is stored beside their logs: only the logs of
    these are read, and only if they have changed."""

    log: SessionLog
    _cached: dict[str, tuple[tuple[object, ...], SessionSummary]] = field(
        default_factory=dict[str, tuple[tuple[object, ...], SessionSummary]]
    )

    async def read(self) -> list[SessionSummary]:
        summaries: list[SessionSummary] = []
        rows = await self.log.sessions(limit=_MAX_SESSIONS)
        for row, line in zip(rows, await read_lines(self.log, rows), strict=True):
            if line.status not in _ACTIVE:
                continue
            state = (row.head.seq, row.updated, line.status)
            cached = self._cached.get(row.id)
            if cached is None or cached[0] != state:
                cached = (state, await summarize_session(self.log, row))
                self._cached[row.id] = cached
            summaries.append(structs.replace(cached[1], activity=line.text))
            await anyio.lowlevel.checkpoint()
        return summaries
