"""`mainspring sessions`: listing, reading, forking, cancelling and answering. Rewinding, moving and
importing sessions are in files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args

import msgspec
import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, LeaseHeld
from mainspring.core.events import Usage, UserInterrupt
from mainspring.core.lazy_module import LazyModule
from mainspring.core.sender import Origin, OriginType, local_user
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import (
    ChoiceOption,
    CountOption,
    FormOption,
    JsonOption,
    SessionArgument,
)
from mainspring.edges.cli.render.event_summary import short_id, truncate
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    age_text,
    dollars,
    local_time,
    print_note,
    print_result,
)
from mainspring.edges.cli.render.renderer import TerminalRenderer
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.edges.cli.sessions.log_maintenance import rm
from mainspring.edges.cli.sessions.session_import import import_
from mainspring.edges.cli.sessions.session_rewind import diff, rewind, snapshots
from mainspring.edges.cli.sessions.session_transfer import export, pull, push
from mainspring.error_table import with_hints
from mainspring.harness.state.open_call import OpenCall
from mainspring.log import search as searching
from mainspring.log.session_status import Status
from mainspring.runtime.agent import Agent
from mainspring.runtime.approvals import Answer, may_comment, parse_form, submit_answer
from mainspring.runtime.session.recent_sessions import PEOPLES_ORIGINS, sessions_of_origins
from mainspring.runtime.session.session_summary import (
    SessionSummary,
    read_open_calls,
    summarize_session,
)
from mainspring.runtime.session.session_updates import set_title
from mainspring.wiring.stores import has_store

if TYPE_CHECKING:
    from mainspring.wiring import runtime_assembly as wiring
else:
    # it imports the clients of models
    wiring = LazyModule("mainspring.wiring.runtime_assembly")

_STYLES: dict[Status, str] = {
    "new": "dim",
    "running": "green",
    "unfinished": "yellow",
    "requires_action": "bold yellow",
    "idle": "",
    "moved": "dim",
}
_MAX_TITLE_CHARS = 500  # as the API has it
_PLACEHOLDER_AGENT = Agent(model="scripted:demo")
"""The agent that ends an interrupted session; its model is not called."""


class SessionSummaryView(Struct, frozen=True, kw_only=True):
    """A session as `--json` prints it."""

    id: str
    title: str | None
    agent: str | None
    model: str | None
    status: str
    activity: str
    reason: str | None
    outcome: str | None
    turns: int
    usage: Usage
    cost_usd: Decimal
    created: datetime
    updated: datetime
    holder: str | None
    parent: str | None
    origin: Origin


app = command_group()
OriginChoice: TypeAlias = Literal[
    "user",
    "api",
    "schedule",
    "trigger",
    "workflow",
    "eval",
    "grader",
    "dream",
    "campaign",
    "gateway",
    "import",
    "command",
]
"""As `core.sender.OriginType`, which is not imported for a help text."""


@command(app)
async def ls(
    settings: Settings,
    *,
    limit: CountOption = 20,
    origin: Annotated[
        OriginChoice | None, typer.Option(help="Only sessions of this origin.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also sessions of evals, dreams, workflows and schedules.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """List people's sessions with their state and cost, newest first."""
    if origin is not None and every:
        raise typer.BadParameter("use either --origin or --all")
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    chosen = get_args(OriginType) if every else PEOPLES_ORIGINS
    sessions = await _list_sessions(settings, limit + 1, [origin] if origin else chosen)
    if json:
        for item in sessions[:limit]:
            screen.json(session_view(item))
        return 0
    if not sessions:
        message = "no sessions yet" if origin is None else f"no sessions of origin {origin}"
        notes.paragraph((f"{message} in {settings.store_label}", ""))
        notes.paragraph(("`mainspring run 'what to do'` starts one", "dim"))
        if not every:
            notes.paragraph(("--all also lists those of evals, dreams and workflows", "dim"))
        return 0
    now = clock.now()
    heads = ["SESSION", "STATUS", "TURNS", "COST", "CHANGED", "TITLE"]
    screen.table(heads, [_session_row(screen, item, now) for item in sessions[:limit]])
    if len(sessions) > limit:
        notes.paragraph(
            (f"there are more sessions; --limit {limit * 5} shows up to {limit * 5}", "dim")
        )
    return 0


async def _list_sessions(
    settings: Settings, limit: int, origins: Sequence[OriginType]
) -> list[SessionSummary]:
    sessions: list[SessionSummary] = []
    if not has_store(settings):
        return sessions
    async with open_existing_log(settings) as log:
        async for row in sessions_of_origins(log, origins):
            sessions.append(await summarize_session(log, row))
            if len(sessions) == limit:
                break
    return sessions


def session_view(summary: SessionSummary) -> SessionSummaryView:
    return msgspec.convert(summary, SessionSummaryView, from_attributes=True)


def _session_row(screen: Screen, summary: SessionSummary, now: datetime) -> list[StyledText]:
    is_plain = summary.status != "idle" or summary.reason == "completed"
    status = summary.status if is_plain else f"{summary.status} ({summary.reason})"
    status += f", {summary.outcome.replace('_', ' ')}" if summary.outcome else ""
    return [
        (screen.id_text(summary.id), "bold"),
        (status, _STYLES[summary.status]),
        (f"{summary.turns:>5}", ""),
        (dollars(summary.cost_usd), ""),
        (age_text(now - summary.updated), ""),
        (truncate(summary.title or ""), ""),
    ]


@command(app)
async def show(settings: Settings, *, session: SessionArgument) -> int:
    """Show a session as a conversation."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        renderer = TerminalRenderer(settings, is_live=False, is_whole=True)
        for event in await log.read(row.id):
            if event.thread_id == row.thread_id:
                renderer.event(event)
        renderer.close()
    return 0


@command(app)
async def fork(
    settings: Settings,
    *,
    session: SessionArgument,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", min=1, metavar="N", help="Copy the events up to this one. [default: all]"
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The title of the new session.")] = None,
    json: JsonOption = False,
) -> int:
    """Start a new session with the events of this one."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        forked = await log.fork(row.id, at=at, title=title, sender=local_user(settings.user))
    view = {"id": forked.id, "parent": row.id, "parent_seq": forked.parent_seq}
    origin = f"  from event {forked.parent_seq}"
    text = (("forked ", "green"), (forked.id, ""), (origin, "dim"))
    print_result(settings, view, *text, json=json)
    if not json:
        name = short_id(forked.id)
        print_note(settings, f"continue: mainspring run --resume {name} 'what to do'")
    return 0


class SearchHitView(Struct, frozen=True, kw_only=True):
    """A search result as `--json` prints it."""

    session_id: str
    seq: int
    time: datetime
    snippet: str


@command(app)
async def search(
    settings: Settings,
    *,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS...", help="Words that must all occur.")
    ],
    limit: CountOption = 20,
    json: JsonOption = False,
) -> int:
    """Find sessions by their text."""
    screen, query, results = Screen(settings), " ".join(words), list[SearchHitView]()
    async with open_existing_log(settings) as log:
        for hit in await searching.search(log, query, limit=limit):
            for event in await log.read(hit.session_id, after=hit.seq - 1, limit=1):
                result = SearchHitView(
                    session_id=hit.session_id, seq=hit.seq, time=event.time, snippet=hit.snippet
                )
                results.append(result)
    for result in results:
        if json:
            screen.json(result)
            continue
        time = f"  {local_time(result.time)}  "
        name = screen.id_text(result.session_id)
        screen.line((name, "bold"), (time, "dim"), (truncate(result.snippet), ""))
    if not results:
        print_note(settings, f"no session has all of these words: {query}")
    return 0


@command(app)
async def rename(
    settings: Settings,
    *,
    session: SessionArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its new title.")],
) -> int:
    """Rename a session."""
    title = " ".join(name.split())
    if not title or len(title) > _MAX_TITLE_CHARS:
        raise InvalidInput(f"a title has 1 to {_MAX_TITLE_CHARS} characters")
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        await set_title(log, row.id, title, sender=local_user(settings.user))
    Screen(settings).line(("renamed ", "green"), (row.id, ""), (f"  {title}", "dim"))
    return 0


@command(app)
async def cancel(settings: Settings, *, session: SessionArgument) -> int:
    """Interrupt a running session, in any process. Nothing recorded is lost."""
    screen = Screen(settings)
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        status = (await summarize_session(log, row)).status
        if status in ("running", "unfinished"):
            await log.submit(row.id, UserInterrupt(), sender=local_user(settings.user))
    if status == "unfinished":
        async with wiring.open_runtime(settings) as runtime:
            with suppress(LeaseHeld):  # another process runs it now, and gets the interrupt
                await (await runtime.resume(_PLACEHOLDER_AGENT, row.id)).run()
    if status not in ("running", "unfinished"):
        screen.line((f"{row.id} is not running: {status}", ""))
        return 1
    screen.line(("cancelled ", "yellow"), (row.id, ""))
    return 0


@command(app)
async def answer(  # parameters: the options of the command
    settings: Settings,
    *,
    session: SessionArgument,
    call: Annotated[
        str, typer.Argument(metavar="CALL", help="The call's id, or a unique part of it.")
    ],
    verdict: Annotated[
        Literal["allow", "deny"], typer.Argument(help="Whether it may run.", metavar="allow|deny")
    ],
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            help="The reason for a denial, which the agent reads; or a comment on a question that"
            " is not about a call.",
        ),
    ] = None,
    form: FormOption = None,
    choice: ChoiceOption = None,
) -> int:
    """Answer a call that waits for approval, or a question."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        waiting = await read_open_calls(log, row)
        pending = _find_call(call, waiting)
        if message is not None and verdict == "allow" and not may_comment(pending):
            raise typer.BadParameter("allowed only with deny", param_hint="--message")
        reply = Answer(decision=verdict, text=message, form=parse_form(form), choice=choice)
        await submit_answer(log, row.id, pending, reply, sender=local_user(settings.user))
    style = "green" if verdict == "allow" else "red"
    Screen(settings).line(
        (f"{verdict} ", style), (pending.name, "bold"), (f"  {pending.id}", "dim")
    )
    remaining = f"{len(waiting) - 1} more wait for an answer; then: " if len(waiting) > 1 else ""
    if not may_comment(pending):
        print_note(settings, f"{remaining}mainspring run --resume {short_id(row.id)}")
    return 0


def _find_call(id_or_part: str, waiting: list[OpenCall]) -> OpenCall:
    """Raises: InvalidInput."""
    matches = [call for call in waiting if id_or_part == call.id] or [
        call for call in waiting if id_or_part and id_or_part in call.id
    ]
    if len(matches) == 1:
        return matches[0]
    problem = "could be any of several calls" if matches else "is not a call that waits"
    calls = ", ".join(f"{call.name} {short_id(call.id)}" for call in waiting)
    hint = f"these wait: {calls}" if calls else "no call of this session waits"
    raise with_hints(InvalidInput(f"{id_or_part} {problem}"), hint)


for function in (rewind, snapshots, diff, export, pull, push, rm):
    command(app)(function)
command(app, "import")(import_)
