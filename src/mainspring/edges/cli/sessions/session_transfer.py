"""`mainspring sessions export`, `pull` and `push`."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from mainspring import __version__
from mainspring.config import Settings
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.options import JsonOption, OutputOption, SessionArgument
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import Screen, escape_json, print_note, sanitize_text
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.files.atomic_file import atomic_write, file_errors
from mainspring.runtime.export_sessions.exporter import ExportFormat, export_session
from mainspring.wiring.stores import open_log

if TYPE_CHECKING:
    from mainspring.edges.cli.sessions import pull_client, push_client
else:  # they import aiohttp
    pull_client = LazyModule("mainspring.edges.cli.sessions.pull_client")
    push_client = LazyModule("mainspring.edges.cli.sessions.push_client")

_MAX_SHOWN = 20  # paths that stay behind


UrlArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="URL", help="The server, such as https://host.")
]


async def pull(
    settings: Settings,
    *,
    url: UrlArgument,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's full id.")],
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", metavar="DIR", help="A new folder for its files."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Move a session from a server to this machine. Its workspace moves with it. The copy on the
    server can no longer be run. The API key is read from MAINSPRING_API_KEY."""
    target = Path(settings.folder) / (workspace or session)
    async with open_log(settings) as log:
        pulled = await pull_client.pull_session(
            settings, log, url=url, session_id=session, into=target
        )
    if json:
        Screen(settings).json(pulled)
        return 0
    place = pulled.workspace
    Screen(settings).line(("moved here ", "green"), (session, ""), (f"  {place}", "dim"))
    for path in pulled.left_out[:_MAX_SHOWN]:
        print_note(settings, f"not transferred: {path}")
    if (remaining := len(pulled.left_out) - _MAX_SHOWN) > 0:
        print_note(settings, f"and {remaining} more")
    hint = f"continue: mainspring run --resume {short_id(session)} 'what to do'"
    print_note(settings, hint)
    return 0


async def push(  # parameters: the options of the command
    settings: Settings,
    *,
    url: UrlArgument,
    session: SessionArgument,
    agent: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The agent on the server that continues it."),
    ] = None,
    environment: Annotated[
        str | None, typer.Option(metavar="ID", help="The environment on the server.")
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", metavar="DIR", help="The folder with its files."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Move a session from this machine to a server. Its workspace moves with it. The copy here can
    no longer be run. The API key is read from MAINSPRING_API_KEY."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        options = push_client.PushOptions(
            url=url,
            session_id=row.id,
            agent=agent,
            environment=environment,
            workspace=None if workspace is None else Path(settings.folder) / workspace,
        )
        received = await push_client.push_session(settings, log, options)
    if json:
        Screen(settings).json({"id": row.id, "received_as": received})
        return 0
    Screen(settings).line(("moved ", "green"), (row.id, ""), (f"  to {url}", "dim"))
    Screen(settings).line(("its id there is ", "green"), (received, ""))
    return 0


async def export(
    settings: Settings,
    *,
    session: SessionArgument,
    form: Annotated[
        Literal["claude-code", "markdown", "html", "jsonl"],
        typer.Option(
            "--format",
            "-f",
            help="claude-code: a transcript that Claude Code reads; markdown; html: one page;"
            " jsonl: the log itself, for `log import`.",
        ),
    ] = "claude-code",
    output: OutputOption = "-",
) -> int:
    """Write a session to a file for people or other tools."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        async with aclosing(export_session(log, row, form, version=__version__)) as pieces:
            if output == "-":
                is_terminal = Screen(settings).width is not None
                async for piece in pieces:
                    sys.stdout.buffer.write(_terminal_safe(piece, form) if is_terminal else piece)
                sys.stdout.buffer.flush()
                return 0
            size = 0
            with file_errors(output), atomic_write(Path(output)) as file:
                async for piece in pieces:
                    size += file.write(piece)
    print_note(settings, f"wrote {row.id} to {output}: {size} bytes")
    return 0


def _terminal_safe(piece: bytes, form: ExportFormat) -> bytes:
    """Text without control characters, which could change the terminal."""
    if form in ("jsonl", "claude-code"):
        return escape_json(piece)
    return sanitize_text(piece.decode("utf-8", "replace")).encode()
