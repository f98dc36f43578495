"""`mainspring cost`: the cost of model calls and tools."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal, TypeAlias

import typer

from mainspring.config import Settings
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    dollars,
    print_list,
    print_note,
    token_count,
)
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

CostGrouping: TypeAlias = Literal["agent", "session", "model", "day", "purpose", "outcome", "tool"]


async def cost(
    settings: Settings,
    *,
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Only this session. [default: all]")
    ] = None,
    by: Annotated[
        CostGrouping | None,
        typer.Option("--by", help="How to group. [default: session; for one session: model]"),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price", metavar="TOOL=USD", help="With --by tool: the price of one call, by tool."
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Show the cost of model calls. It is computed from the logs."""
    by = by or ("session" if session is None else "model")
    prices = dict(_price(text) for text in price or ())
    model_charges: list[ModelCharge] = []
    tools: dict[str, ToolBill] = {}
    async with open_existing_log(settings) as log:
        if session is None:
            sessions = [row async for row in all_sessions(log.store)]
        else:
            sessions = [await find_session(settings, log, session)]
        for row in sessions:
            if by == "tool":
                await add_tool_calls(tools, log, row, prices)
            else:
                model_charges += await charges(log, row)
    if by == "tool":
        return _print_tools(settings, list(tools.values()), json=json)
    return _print_bills(settings, group_charges(model_charges, by), by, json=json)


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
    bills.sort(key=lambda bill: (-bill.cost_usd, -bill.sandbox_seconds, -bill.calls, bill.tool))
    return print_list(
        settings,
        bills,
        json=json,
        heads=["TOOL", "CALLS", "FAILED", " IN SANDBOX", "     COST"],
        row=lambda bill: [
            (bill.tool, "bold"),
            (f"{bill.calls:>5}", ""),
            (f"{bill.failed:>6}" if bill.failed else "", "red"),
            (f"{bill.sandbox_seconds:>9.1f} s", ""),
            (f"{dollars(bill.cost_usd):>9}", ""),
        ],
        empty="no tool has been called",
    )


def _print_bills(settings: Settings, bills: list[Bill], group_by: GroupBy, *, json: bool) -> int:
    screen = Screen(settings)
    if json:
        for bill in bills:
            screen.json({"by": group_by, **asdict(bill)})
        return 0
    if not bills:
        print_note(settings, "no model has been called")
        return 0
    rows = [_row(screen, bill, group_by) for bill in bills]
    if len(bills) > 1:
        rows.append([(words, "bold") for words, _ in _row(screen, total(bills), "model")])
    heads = [
        group_by.upper(),
        "     COST",
        "CALLS",
        "FAILED",
        "   IN",
        "CACHED",
        "  OUT",
        "THINKING",
    ]
    screen.table(heads, rows)
    if group_by == "outcome":
        costs = outcome_costs(bills)
        usd = costs.usd_per_satisfied
        price = "" if usd is None else f", {dollars(usd)} for each"
        screen.line((f"{costs.satisfied} of {costs.outcomes} outcomes satisfied{price}", ""))
    return 0


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
