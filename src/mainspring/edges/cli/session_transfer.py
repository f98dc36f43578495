"""`mainspring sessions export`, `pull` and `push`."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path

from mainspring import __version__
from mainspring.config import Settings
from mainspring.edges.cli.atomic_files import atomic_write, file_errors
from mainspring.edges.cli.event_summary import short_id
from mainspring.edges.cli.printing import Screen, escape_json, print_note, sanitize_text
from mainspring.edges.cli.pull_client import pull_session
from mainspring.edges.cli.push_client import PushOptions, push_session
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.runtime.export_sessions.exporter import ExportFormat, export_session
from mainspring.wiring.stores import open_log

_MAX_SHOWN = 20


async def pull(
    settings: Settings, *, url: str, session_id: str, into: str | None, json: bool
) -> int:
    target = Path(settings.folder) / (into or session_id)
    async with open_log(settings) as log:
        pulled = await pull_session(settings, log, url=url, session_id=session_id, into=target)
    if json:
        Screen(settings).json(pulled)
        return 0
    place = pulled.workspace
    Screen(settings).line(("moved here ", "green"), (session_id, ""), (f"  {place}", "dim"))
    for path in pulled.left_out[:_MAX_SHOWN]:
        print_note(settings, f"not transferred: {path}")
    if (more := len(pulled.left_out) - _MAX_SHOWN) > 0:
        print_note(settings, f"and {more} more")
    hint = f"continue: mainspring run --resume {short_id(session_id)} 'what to do'"
    print_note(settings, hint)
    return 0


async def push(
    settings: Settings,
    *,
    url: str,
    id_or_part: str,
    place: tuple[str | None, str | None],
    workspace: str | None,
    json: bool,
) -> int:
    """`place`: the agent and the environment that continue it there."""
    agent, environment = place
    async with open_existing_log(settings) as log:
        session = await find_session(log, id_or_part)
        options = PushOptions(
            url=url,
            session_id=session.id,
            agent=agent,
            environment=environment,
            workspace=None if workspace is None else Path(settings.folder) / workspace,
        )
        received = await push_session(settings, log, options)
    if json:
        Screen(settings).json({"id": session.id, "received_as": received})
        return 0
    Screen(settings).line(("moved ", "green"), (session.id, ""), (f"  to {url}", "dim"))
    Screen(settings).line(("its id there is ", "green"), (received, ""))
    return 0


async def export(settings: Settings, *, id_or_part: str, form: ExportFormat, output: str) -> int:
    async with open_existing_log(settings) as log:
        session = await find_session(log, id_or_part)
        async with aclosing(export_session(log, session, form, version=__version__)) as pieces:
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
    print_note(settings, f"wrote {session.id} to {output}: {size} bytes")
    return 0


def _terminal_safe(piece: bytes, form: ExportFormat) -> bytes:
    """Text of a session must not control the terminal."""
    if form in ("jsonl", "claude-code"):
        return escape_json(piece)
    return sanitize_text(piece.decode("utf-8", "replace")).encode()
