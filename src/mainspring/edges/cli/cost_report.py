"""`mainspring cost`: what model calls cost."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.events import Usage
from mainspring.edges.cli.event_summary import short_id
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.printing import Screen, StyledText, dollars, print_note, token_count
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.harness.context.xray import cached_share
from mainspring.harness.limits import prompt_tokens
from mainspring.log.store import all_sessions
from mainspring.runtime.session.spending import (
    Bill,
    GroupBy,
    ModelCharge,
    charges,
    group_charges,
    total,
)


class CostView(Struct, frozen=True, kw_only=True):
    by: str
    key: str
    calls: int
    failed: int
    usage: Usage
    cost_usd: str


class CostGrouping(StrEnum):
    agent = "agent"
    session = "session"
    model = "model"
    day = "day"
    purpose = "purpose"


async def cost(
    settings: Settings,
    *,
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Only this one; else all.")
    ] = None,
    by: Annotated[
        CostGrouping | None,
        typer.Option("--by", help="How to group. [default: session; for one session: model]"),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Show what model calls cost. Computed from the logs."""
    grouping = CostGrouping.session if session is None else CostGrouping.model
    group_by: GroupBy = (by or grouping).value
    screen = Screen(settings)
    found: list[ModelCharge] = []
    async with open_existing_log(settings) as log:
        if session is None:
            sessions = [row async for row in all_sessions(log.store)]
        else:
            sessions = [await find_session(log, session)]
        for row in sessions:
            found += await charges(log, row)
    bills = group_charges(found, group_by)
    if json:
        for bill in bills:
            screen.json(_view(bill, group_by))
        return 0
    if not bills:
        print_note(settings, "no model has been called")
        return 0
    rows = [_row(screen, bill, group_by) for bill in bills]
    if len(bills) > 1:
        rows.append([(words, "bold") for words, _ in _row(screen, total(bills), "model")])
    heads = [group_by.upper(), "COST", "CALLS", "FAILED", "IN", "CACHED", "OUT", "THINKING"]
    screen.table(heads, rows)
    return 0


def _view(bill: Bill, group_by: GroupBy) -> CostView:
    return CostView(
        by=group_by,
        key=bill.key,
        calls=bill.calls,
        failed=bill.failed,
        usage=bill.usage,
        cost_usd=str(bill.cost_usd),
    )


def _row(screen: Screen, bill: Bill, group_by: GroupBy) -> list[StyledText]:
    share = cached_share(bill.usage)
    key = short_id(bill.key) if group_by == "session" and screen.width is not None else bill.key
    return [
        (key, "bold"),
        (f"{dollars(bill.cost_usd):>9}", ""),
        (f"{bill.calls:>5}", ""),
        (f"{bill.failed:>6}" if bill.failed else "", "red"),
        (f"{token_count(prompt_tokens(bill.usage)):>5}", ""),
        (f"{share:>6.0%}" if share is not None else "", "dim"),
        (f"{token_count(bill.usage.output_tokens):>5}", ""),
        (f"{token_count(thought):>8}" if (thought := bill.usage.thought_tokens) else "", "dim"),
    ]
