"""`mainspring cost`: what model calls cost."""

from __future__ import annotations

from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.events import Usage
from mainspring.edges.cli.event_summary import short_id
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


async def cost(settings: Settings, *, id_or_part: str | None, group_by: GroupBy, json: bool) -> int:
    screen = Screen(settings)
    found: list[ModelCharge] = []
    async with open_existing_log(settings) as log:
        if id_or_part is None:
            sessions = [session async for session in all_sessions(log.store)]
        else:
            sessions = [await find_session(log, id_or_part)]
        for session in sessions:
            found += await charges(log, session)
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
    heads = [group_by.upper(), "COST", "CALLS", "FAILED", "IN", "CACHED", "OUT"]
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
    ]
