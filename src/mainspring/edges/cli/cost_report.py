"""`mainspring cost`: what model calls cost."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
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
    outcome_costs,
    total,
)
from mainspring.runtime.session.tool_spending import ToolBill, add_tool_calls


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
    outcome = "outcome"
    tool = "tool"


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
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price", metavar="TOOL=USD", help="What a call of a tool costs; with --by tool."
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Show what model calls cost. Computed from the logs."""
    by = by or (CostGrouping.session if session is None else CostGrouping.model)
    prices = dict(_price(text) for text in price or ())
    found: list[ModelCharge] = []
    tools: dict[str, ToolBill] = {}
    async with open_existing_log(settings) as log:
        if session is None:
            sessions = [row async for row in all_sessions(log.store)]
        else:
            sessions = [await find_session(log, session)]
        for row in sessions:
            if by is CostGrouping.tool:
                await add_tool_calls(tools, log, row, prices)
            else:
                found += await charges(log, row)
    if by is CostGrouping.tool:
        return _print_tools(settings, list(tools.values()), json=json)
    return _print_bills(settings, found, by.value, json=json)


def _price(text: str) -> tuple[str, Decimal]:
    name, _, amount = text.partition("=")
    try:
        usd = Decimal(amount)
    except InvalidOperation:
        usd = Decimal(-1)
    if not name or not usd.is_finite() or usd < 0:
        raise typer.BadParameter("must be like web_search=0.01", param_hint="--price")
    return name, usd


def _print_tools(settings: Settings, bills: list[ToolBill], *, json: bool) -> int:
    screen = Screen(settings)
    bills.sort(key=lambda bill: (-bill.cost_usd, -bill.sandbox_seconds, -bill.calls, bill.tool))
    if json:
        for bill in bills:
            screen.json(bill)
        return 0
    if not bills:
        print_note(settings, "no tool has been called")
        return 0
    rows: list[list[StyledText]] = [
        [
            (bill.tool, "bold"),
            (f"{bill.calls:>5}", ""),
            (f"{bill.failed:>6}" if bill.failed else "", "red"),
            (f"{bill.sandbox_seconds:>9.1f} s", ""),
            (f"{dollars(bill.cost_usd):>9}", ""),
        ]
        for bill in bills
    ]
    screen.table(["TOOL", "CALLS", "FAILED", "IN SANDBOX", "COST"], rows)
    return 0


def _print_bills(
    settings: Settings, found: list[ModelCharge], group_by: GroupBy, *, json: bool
) -> int:
    screen = Screen(settings)
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
    if group_by == "outcome":
        costs = outcome_costs(bills)
        each = costs.usd_per_satisfied
        price = "" if each is None else f", {dollars(each)} for each"
        screen.line((f"{costs.satisfied} of {costs.outcomes} outcomes satisfied{price}", ""))
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
