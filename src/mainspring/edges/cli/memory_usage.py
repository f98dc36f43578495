"""`mainspring memory stats` and `why`: what memories were worth, and why they were shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput
from mainspring.core.events import MemoryRecalled
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.memory import app
from mainspring.edges.cli.options import JsonOption, SessionArgument
from mainspring.edges.cli.printing import local_time, print_list
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.runtime.utility.utility_table import update_utility
from mainspring.wiring.memory import open_utility_table

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
    """Show what memories, skills and tools were worth: 0.5 at first, then by how work ended."""
    if type and type not in _TYPES:
        raise InvalidInput(f"{type!r} is not a type: {', '.join(_TYPES)}")
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
    """Show which memories a session was given, in which order, and what ranked them."""
    async with open_existing_log(settings) as log:
        row = await find_session(log, session)
        recalled = await log.read(row.id, types=event_types(MemoryRecalled))
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
        empty="this session was given no memory",
    )


def _parts_text(parts: dict[str, float]) -> str:
    if not parts:
        return "read by its path"
    return " ".join(f"{name} {value:+.2f}" for name, value in parts.items() if value)
