"""`mainspring memory stats`, `why` and `forget`: how useful memories were, why a session received
them, and how they are removed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput
from mainspring.core.events import MemoryRecalled
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.memories.memory import (
    PathArgument,
    ReasonOption,
    ScopeOption,
    app,
    change_by_hand,
    find_memory,
    print_version,
    scoped_folders,
)
from mainspring.edges.cli.options import JsonOption, SessionArgument
from mainspring.edges.cli.render.printing import local_time, plural, print_list, print_note
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.runtime.memory.learning.learned_changes import (
    LEARNED_TYPES,
    REFUSED,
    learned_views,
)
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_purge import purge_memory
from mainspring.runtime.utility.utility_table import update_utility
from mainspring.wiring.memory import index_files, memory_folders, open_utility_table
from mainspring.wiring.stores import has_store

_TYPES = ("memory", "skill", "prompt_fragment", "tool")


class RecallView(Struct, frozen=True, kw_only=True):
    time: datetime
    scope: str
    path: str
    version: str
    rank: int
    tokens: int
    parts: dict[str, float]


@command(app)
async def stats(
    settings: Settings,
    *,
    type: Annotated[
        str, typer.Option("--type", help="Only memory, skill, prompt_fragment or tool.")
    ] = "",
    json: JsonOption = False,
) -> int:
    """Show how useful memories, skills and tools were. The value is 0.5 at first, and is adjusted
    by the results of sessions."""
    if type and type not in _TYPES:
        raise InvalidInput(f"{type!r} is not a type of memory; use one of {', '.join(_TYPES)}")
    table = await to_thread.run_sync(open_utility_table, settings)
    async with open_existing_log(settings) as log:
        await update_utility(log, table)
    rows = [row for row in await to_thread.run_sync(table.rows) if type in ("", row.type)]
    return print_list(
        settings,
        rows,
        json=json,
        heads=["VALUE", "TYPE", "ID", "CREDITS", "USES", "SESSIONS", "LAST USED"],
        row=lambda row: [
            (f"{row.value:.2f}", "bold"),
            (row.type, "dim"),
            (row.id, ""),
            (str(row.credits), ""),
            (str(row.uses), ""),
            (str(row.sessions), ""),
            ("-" if row.last_used is None else local_time(row.last_used), "dim"),
        ],
        empty="nothing was used yet",
    )


@command(app)
async def why(settings: Settings, *, session: SessionArgument, json: JsonOption = False) -> int:
    """Show which memories a session received, and what it taught. Lists them in order, with the
    reasons."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        recalled = await log.read(row.id, types=event_types(MemoryRecalled))
        learned = learned_views(await log.read(row.id, types=LEARNED_TYPES))
    views = [
        RecallView(
            time=event.time,
            scope=payload.store_id,
            path=payload.path,
            version=payload.version,
            rank=payload.rank,
            tokens=payload.tokens,
            parts=payload.score_parts,
        )
        for event in recalled
        if isinstance(payload := event.payload, MemoryRecalled)
    ]
    if learned:
        print_list(
            settings,
            learned,
            json=json,
            heads=["TIME", "CHANGE", "MEMORY", "REASON"],
            row=lambda view: [
                (local_time(view.time), "dim"),
                (view.change, "red" if view.change == REFUSED else ""),
                (view.memory, "bold"),
                (view.reason, "dim"),
            ],
            empty="",
        )
    if learned and not views:
        return 0
    return print_list(
        settings,
        views,
        json=json,
        heads=["TIME", "RANK", "PATH", "TOKENS", "SCORE"],
        row=lambda view: [
            (local_time(view.time), "dim"),
            (str(view.rank), ""),
            (f"{view.scope}/{view.path}", "bold"),
            (str(view.tokens), "dim"),
            (_parts_text(view.parts), ""),
        ],
        empty="this session received no memories and taught none",
    )


@command(app)
async def forget(
    settings: Settings,
    *,
    path: PathArgument,
    scope: ScopeOption = "",
    purge: Annotated[
        bool,
        typer.Option(
            "--purge",
            help="Also remove its text from its versions, the index and all logs; this cannot be"
            " undone.",
        ),
    ] = False,
    reason: ReasonOption = "forgotten by hand",
    json: JsonOption = False,
) -> int:
    """Forget a memory. `memory revert` restores it, unless it was purged."""
    scope, folder = _find_forgettable(settings, path, scope)
    change = change_by_hand(settings, reason)
    if not purge:
        version = await to_thread.run_sync(folder.forget, path, change)
        return print_version(settings, version, "forgotten", json=json)
    async with AsyncExitStack() as stack:
        log = None
        if has_store(settings):
            log = await stack.enter_async_context(open_existing_log(settings))
        index = partial(index_files(settings).purge, memory_folders(settings), scope, path)
        version, events = await purge_memory(folder, path, change, log=log, purge_index=index)
    if not json:
        print_note(settings, f"removed from {plural(events, 'event')}")
    return print_version(settings, version, "purged", json=json)


def _find_forgettable(settings: Settings, path: str, scope: str) -> tuple[str, MemoryFolder]:
    """Like `find_memory`, but also finds a memory whose purge was not finished."""
    for name, folder in scoped_folders(settings, scope).items():
        if path in folder.unfinished_purges():
            return name, folder
    return find_memory(settings, path, scope)


def _parts_text(parts: dict[str, float]) -> str:
    if not parts:
        return "read by its path"
    return " ".join(f"{name} {value:+.2f}" for name, value in parts.items() if value)
