"""`mainspring log`: arguments and options."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import Action, command_group
from mainspring.edges.cli.options import JsonOption, SessionArgument, YesOption, parse_duration

if TYPE_CHECKING:
    from mainspring.edges.cli import log_maintenance, log_view
else:
    log_maintenance = LazyModule("mainspring.edges.cli.log_maintenance")
    log_view = LazyModule("mainspring.edges.cli.log_view")

AfterOption: TypeAlias = Annotated[
    int, typer.Option(help="Only events after this number.", min=0, metavar="N")
]

app = command_group()


@app.command()
def ls(
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1)] = 20,
    json: JsonOption = False,
) -> Action:
    """List sessions, newest first."""
    return partial(log_view.ls, limit=limit, json=json)


@app.command()
def show(
    session: SessionArgument,
    after: AfterOption = 0,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", help="Only events of this type; may be repeated."),
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Only events of this thread.")] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", help="Only the last N.", min=1, metavar="N")
    ] = None,
    json: JsonOption = False,
) -> Action:
    """Show a session's events, one a line."""
    wanted = log_view.EventFilter(after=after, types=types or None, thread=thread, tail=tail)
    return partial(log_view.show, id_or_part=session, event_filter=wanted, json=json)


@app.command()
def follow(session: SessionArgument, after: AfterOption = 0, json: JsonOption = False) -> Action:
    """Show events, then new ones as they happen."""
    return partial(log_view.follow, id_or_part=session, after=after, json=json)


@app.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words that must all occur.")],
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Only in this session.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1)] = 20,
    json: JsonOption = False,
) -> Action:
    """Search the text of sessions."""
    return partial(log_view.search, query=query, session=session, limit=limit, json=json)


@app.command()
def verify(
    session: Annotated[
        str | None,
        typer.Argument(metavar="[SESSION]", help="The session's id, or a unique part of it."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    json: JsonOption = False,
) -> Action:
    """Check that no log was changed after it was written."""
    if (session is None) != every:
        raise typer.BadParameter("give one: a session, or --all", param_hint="SESSION")
    return partial(log_maintenance.verify, id_or_part=session, json=json)


@app.command()
def export(
    session: SessionArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is standard output.")
    ] = "-",
) -> Action:
    """Write a session to a file, or to standard output."""
    return partial(log_maintenance.export, id_or_part=session, output=output)


@app.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file written by export; - is standard input.")
    ],
    json: JsonOption = False,
) -> Action:
    """Store sessions that `log export` wrote."""
    return partial(log_maintenance.import_, name=file, json=json)


@app.command()
def rm(
    session: SessionArgument,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also delete the sessions forked from it.")
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Delete a session for good."""
    return partial(log_maintenance.rm, id_or_part=session, cascade=cascade, yes=yes, json=json)


@app.command()
def expire(
    older_than: Annotated[
        timedelta,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Unchanged for this long: 90m, 12h, 30d, 8w.",
        ),
    ],
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Delete sessions that have not changed for a time."""
    return partial(log_maintenance.expire, older_than=older_than, yes=yes, json=json)
