"""`mainspring cost`, `insights`, `context`, `replay` and `test`: their arguments and options."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import Action, command_group
from mainspring.edges.cli.options import JsonOption, SessionArgument, parse_duration

if TYPE_CHECKING:
    from mainspring.edges.cli import context_report, cost_report, insights_report, replay_command
else:
    cost_report = LazyModule("mainspring.edges.cli.cost_report")
    insights_report = LazyModule("mainspring.edges.cli.insights_report")
    replay_command = LazyModule("mainspring.edges.cli.replay_command")
    context_report = LazyModule("mainspring.edges.cli.context_report")

context = command_group()
test = command_group()


class CostGrouping(StrEnum):
    agent = "agent"
    session = "session"
    model = "model"
    day = "day"


def cost(
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Only this one; else all.")
    ] = None,
    cost_grouping: Annotated[
        CostGrouping | None,
        typer.Option("--by", help="How to group. [default: session; for one session: model]"),
    ] = None,
    json_option: JsonOption = False,
) -> Action:
    """Show what model calls cost. Computed from the logs."""
    grouped = (
        cost_grouping.value
        if cost_grouping is not None
        else ("session" if session is None else "model")
    )
    return partial(cost_report.cost, id_or_part=session, group_by=grouped, json=json_option)


def insights(
    since: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Only what happened in this time: 12h, 30d, 8w. [default: all]",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="How many of each kind to show.")
    ] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with all.")] = False,
) -> Action:
    """Show what your sessions waste. Also shows what fails repeatedly, which rules are missing,
    and which tools and skills are never used. Includes imported sessions; calls no model."""
    return partial(insights_report.insights, since=since, limit=limit, json=json)


@context.command()
def show(
    session: SessionArgument,
    call: Annotated[
        int | None, typer.Option("--call", min=1, metavar="N", help="Only this call, in detail.")
    ] = None,
    json: JsonOption = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the request itself, byte for byte.")
    ] = False,
) -> Action:
    """Rebuild past requests: tokens of each part, what changed, why the cache broke."""
    if raw and json:
        raise typer.BadParameter("give one of --json and --raw", param_hint="--raw")
    return partial(context_report.show, id_or_part=session, call=call, json=json, raw=raw)


def replay(
    session: SessionArgument,
    start: Annotated[
        int | None,
        typer.Option("--from", min=1, metavar="N", help="Take events up to N as is."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Continue with this model at a difference.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Use this as the first message from there.")
    ] = None,
    json_option: JsonOption = False,
) -> Action:
    """Run a session again without its model. Tools do not run either. Exit status 1 at the first
    difference; with --model or --prompt, a fork continues from there."""
    options = replay_command.ReplayOptions(
        start=start, model=model, prompt=prompt, json=json_option
    )
    return partial(replay_command.replay, id_or_part=session, replay_options=options)


@test.command()
def record(
    session: SessionArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Where the test goes.")
    ] = "tests/replays",
) -> Action:
    """Write a session and a pytest file that replays it."""
    return partial(replay_command.record, id_or_part=session, output=output)
