"""`mainspring dream`: reads past sessions and proposes changes to memories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock, ids
from mainspring.core.errors import InvalidInput
from mainspring.core.events import DreamCreated
from mainspring.core.sender import local_user
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.evals.eval_suites import load_suites
from mainspring.edges.cli.options import JsonOption, YesOption, parse_dollars
from mainspring.edges.cli.render.printing import (
    Screen,
    confirm,
    local_time,
    plural,
    print_list,
    print_note,
)
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.improve.dreams.dream_log import (
    Dream,
    create_dream,
    list_dreams,
    read_dream,
    read_edits,
)
from mainspring.improve.dreams.dreamer import MAX_SESSIONS, Dreamer
from mainspring.improve.dreams.session_choice import is_due, new_sessions, sessions_read
from mainspring.improve.evals.suite import SuiteFile
from mainspring.log.session_log import SessionLog
from mainspring.runtime.memory.learning.memory_edits import MemoryEdit, edit_diff
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory_setup import AGENT, USER
from mainspring.wiring.dream_assembly import DreamSettings, open_dreamer
from mainspring.wiring.memory import memory_folders

app = command_group()

DreamArgument = Annotated[
    str, typer.Argument(metavar="DREAM", help="The dream's id, as `dream ls` shows it.")
]
ScopeOption = Annotated[
    str, typer.Option("--scope", help="Whose memories: agent (memory/ here) or user (yours).")
]


class DreamView(Struct, frozen=True, kw_only=True):
    id: str
    time: datetime
    scope: str
    status: str
    sessions: int
    changes: int
    cost_usd: str
    score: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDream:
    session: Annotated[
        list[str] | None,
        typer.Option("--session", metavar="SESSION", help="Read this session. Can be repeated."),
    ] = None
    scope: ScopeOption = "agent"
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Also ask this model. [default: no model is used]"),
    ] = None
    instructions: Annotated[
        str | None, typer.Option("--instructions", help="What the model should look for.")
    ] = None
    budget: Annotated[
        Decimal | None,
        typer.Option(parser=parse_dollars, metavar="USD", help="The cost limit."),
    ] = None
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            help="Test the changes with this eval suite; do not apply them if it gets worse.",
        ),
    ] = None
    apply: Annotated[bool, typer.Option("--apply", help="Apply the changes without a review.")] = (
        False
    )
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Run only after a day or five new sessions.")
    ] = False
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Run the suite's programs without isolation.")
    ] = False


@command(app)
async def run(settings: Settings, *, new: NewDream, json: JsonOption = False) -> int:
    """Read past sessions and propose changes to memories. Each change comes with its evidence."""
    suite = await _suite(settings, new)
    async with open_dreamer(settings, _dream_settings(settings, new, suite)) as dreamer:
        sessions = await _sessions(dreamer.log, settings, new)
        if not sessions:
            print_note(settings, "no new sessions: nothing to do")
            return 0
        created = DreamCreated(
            dream_id=ids.new_id("drm"),
            store_id=new.scope,
            session_ids=tuple(sorted(sessions)),
            policy="apply" if new.apply else "review",
            model=new.model,
            instructions=new.instructions,
            budget_usd=None if new.budget is None else str(new.budget),
        )
        store = _store(settings, new.scope)
        sender = local_user(settings.user)
        await create_dream(dreamer.log, created, store=store, sender=sender)
        dream = await dreamer.run(created.dream_id)
        return await _print_dream(settings, dreamer.log, dream, json=json)


@command(app)
async def ls(settings: Settings, *, scope: ScopeOption = "agent", json: JsonOption = False) -> int:
    """List dreams, newest first."""
    async with open_existing_log(settings) as log:
        dreams = await list_dreams(log, _store(settings, scope))
        views = [_view(await read_dream(log, item.dream_id)) for item in reversed(dreams)]
    return print_list(
        settings,
        views,
        json=json,
        heads=["ID", "TIME", "STATUS", "SESSIONS", "CHANGES", "COST"],
        row=lambda view: [
            (view.id, "bold"),
            (local_time(view.time), "dim"),
            (view.status, ""),
            (str(view.sessions), ""),
            (str(view.changes), ""),
            (view.cost_usd, "dim"),
        ],
        empty="no dream yet: `mainspring dream run`",
    )


@command(app)
async def show(settings: Settings, *, dream: DreamArgument, json: JsonOption = False) -> int:
    """Show the changes of a dream. Prints a diff with the evidence for each change."""
    async with open_existing_log(settings) as log:
        return await _print_dream(settings, log, await _find(log, settings, dream), json=json)


@command(app)
async def resume(settings: Settings, *, dream: DreamArgument, json: JsonOption = False) -> int:
    """Continue a dream that was interrupted."""
    return await _change(settings, dream, lambda dreamer, id_: dreamer.run(id_), json=json)


@command(app)
async def apply(
    settings: Settings, *, dream: DreamArgument, yes: YesOption = False, json: JsonOption = False
) -> int:
    """Apply the changes that a dream proposes."""
    if not yes and not json:
        await show(settings, dream=dream)
        if not confirm(settings, "Apply these changes?"):
            return 1
    return await _change(settings, dream, lambda dreamer, id_: dreamer.apply(id_), json=json)


@command(app)
async def rollback(
    settings: Settings,
    *,
    dream: DreamArgument,
    reason: Annotated[
        str, typer.Option("--reason", help="The reason, for the history.")
    ] = "by hand",
    json: JsonOption = False,
) -> int:
    """Roll back the changes of a dream, or reject its proposals."""
    return await _change(
        settings, dream, lambda dreamer, id_: dreamer.roll_back(id_, reason), json=json
    )


async def _change(
    settings: Settings,
    dream: str,
    change: Callable[[Dreamer, str], Awaitable[Dream]],
    *,
    json: bool,
) -> int:
    async with open_existing_log(settings) as log:
        before = await _find(log, settings, dream)
    dream_settings = DreamSettings(scope=before.created.store_id, model=before.created.model)
    async with open_dreamer(settings, dream_settings) as dreamer:
        after = await change(dreamer, before.id)
        return await _print_dream(settings, dreamer.log, after, json=json)


async def _suite(settings: Settings, new: NewDream) -> SuiteFile | None:
    if new.suite is None:
        return None
    (suite,) = await to_thread.run_sync(load_suites, Path(settings.folder), [new.suite])
    return suite


def _dream_settings(settings: Settings, new: NewDream, suite: SuiteFile | None) -> DreamSettings:
    if new.scope not in (AGENT, USER):
        raise InvalidInput(f"{new.scope!r} is not a scope: {AGENT} or {USER}")
    return DreamSettings(
        scope=new.scope,
        model=new.model,
        suite=suite,
        budget_usd=new.budget,
        is_unsandboxed=new.no_sandbox,
        report=lambda text: print_note(settings, text),
    )


async def _sessions(log: SessionLog, settings: Settings, new: NewDream) -> list[str]:
    if new.session:
        rows = [await find_session(settings, log, name) for name in new.session]
        sessions = list(dict.fromkeys(row.id for row in rows))
        if len(sessions) > MAX_SESSIONS:
            raise InvalidInput(f"a dream reads {MAX_SESSIONS} sessions at most")
        return sessions
    earlier, last = await sessions_read(log, _store(settings, new.scope))
    sessions = await new_sessions(log, earlier)
    is_waiting = new.if_due and not is_due(last, len(sessions), clock.now())
    return [] if is_waiting else sessions


def _store(settings: Settings, scope: str) -> str:
    """The store id of the dreams of a folder."""
    return f"folder:{memory_folders(settings)[scope].root.resolve()}"


async def _find(log: SessionLog, settings: Settings, dream: str) -> Dream:
    matches = [
        item.dream_id
        for scope in (AGENT, USER)
        for item in await list_dreams(log, _store(settings, scope))
        if item.dream_id.endswith(dream)
    ]
    if len(matches) > 1:
        raise InvalidInput(f"{dream} matches {len(matches)} dreams: give more of it")
    return await read_dream(log, matches[0] if matches else dream)


async def _print_dream(settings: Settings, log: SessionLog, dream: Dream, *, json: bool) -> int:
    screen, edits = Screen(settings), await read_edits(log, dream)
    view = _view(dream)
    if json:
        for edit in edits:
            screen.json(edit)
        screen.json(view)
        return 0
    folder = memory_folders(settings)[dream.created.store_id]
    for edit in edits:
        screen.text(await to_thread.run_sync(_diff, folder, edit))
    screen.line(
        (f"{dream.id} ", "bold"),
        (f"{view.status}: {plural(view.changes, 'change')} ", ""),
        (f"from {plural(view.sessions, 'session')}", "dim"),
        (f"  {view.score}" if view.score else "", ""),
    )
    if dream.rolled_back is not None:
        print_note(settings, dream.rolled_back.reason)
    elif dream.applied is not None and dream.applied.refused:
        print_note(settings, f"changed meanwhile: {', '.join(dream.applied.refused)}")
    elif view.status == "proposed" and edits:
        print_note(settings, f"`mainspring dream apply {dream.id}` makes the changes")
    return 0


def _diff(folder: MemoryFolder, edit: MemoryEdit) -> str:
    return f"{edit_diff(edit, folder.text(edit.path))}\n\n"


def _view(dream: Dream) -> DreamView:
    proposed = dream.proposed
    score = None if proposed is None else proposed.score
    return DreamView(
        id=dream.id,
        time=dream.time,
        scope=dream.created.store_id,
        status=dream.status,
        sessions=len(dream.created.session_ids),
        changes=0 if proposed is None else proposed.changes,
        cost_usd=str(dream.cost_usd),
        score="" if score is None else f"{score.suite} {score.before:.0%} -> {score.after:.0%}",
    )
