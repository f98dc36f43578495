"""`mainspring log`: how its commands are called."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy import LazyModule
from mainspring.edges.cli.action import Action

if TYPE_CHECKING:
    from mainspring.edges.cli import log_keep, log_read
else:
    log_keep = LazyModule("mainspring.edges.cli.log_keep")
    log_read = LazyModule("mainspring.edges.cli.log_read")

SessionArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SESSION", help="Its id, or a part that no other has.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
After: TypeAlias = Annotated[
    int, typer.Option(help="Only events after this number.", min=0, metavar="N")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

app = typer.Typer(
    help="Read sessions' logs, move them, and delete them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def ls(
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1)] = 20,
    json: Json = False,
) -> Action:
    """List sessions, newest first."""
    return partial(log_read.ls, limit=limit, json=json)


@app.command()
def show(
    session: SessionArgument,
    after: After = 0,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", help="Only events of this type; may be repeated."),
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Only events of this thread.")] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", help="Only the last N.", min=1, metavar="N")
    ] = None,
    json: Json = False,
) -> Action:
    """Show a session's events, one a line."""
    wanted = log_read.Wanted(after=after, types=types or None, thread=thread, tail=tail)
    return partial(log_read.show, meant=session, wanted=wanted, json=json)


@app.command()
def follow(session: SessionArgument, after: After = 0, json: Json = False) -> Action:
    """Show events, then new ones as they happen."""
    return partial(log_read.follow, meant=session, after=after, json=json)


@app.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words that all must occur.")],
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Only in this session.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1)] = 20,
    json: Json = False,
) -> Action:
    """Find what was said."""
    return partial(log_read.search, query=query, session=session, limit=limit, json=json)


@app.command()
def verify(
    session: Annotated[
        str | None,
        typer.Argument(metavar="[SESSION]", help="Its id, or a part that no other has."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    json: Json = False,
) -> Action:
    """Check that no log was changed since it was written."""
    if (session is None) != every:
        raise typer.BadParameter("give one: a session, or --all", param_hint="SESSION")
    return partial(log_keep.verify, meant=session, json=json)


@app.command()
def export(
    session: SessionArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is standard output.")
    ] = "-",
) -> Action:
    """Write a session to a file, or to standard output."""
    return partial(log_keep.export, meant=session, output=output)


@app.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What export wrote; - is standard input.")
    ],
    json: Json = False,
) -> Action:
    """Store sessions that `log export` wrote."""
    return partial(log_keep.import_, name=file, json=json)


@app.command()
def rm(
    session: SessionArgument,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Delete the sessions forked from it, too.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> Action:
    """Delete a session for good."""
    return partial(log_keep.rm, meant=session, cascade=cascade, yes=yes, json=json)


_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time such as 90m, 12h, 30d or 8w")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


@app.command()
def expire(
    older_than: Annotated[
        timedelta,
        typer.Option(
            parser=duration, metavar="TIME", help="Unchanged for so long: 90m, 12h, 30d, 8w."
        ),
    ],
    yes: Yes = False,
    json: Json = False,
) -> Action:
    """Delete sessions that have not changed for a time."""
    return partial(log_keep.expire, older_than=older_than, yes=yes, json=json)
