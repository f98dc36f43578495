"""What `mainspring sessions export` does."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path

from mainspring import __version__
from mainspring.config import Settings
from mainspring.edges.cli.files import replacing, translated
from mainspring.edges.cli.printable import clean, escaped
from mainspring.edges.cli.render import Screen
from mainspring.edges.cli.sessions import existing_log, find_session
from mainspring.runtime.export_sessions.export import Format, export_session


async def export(settings: Settings, *, meant: str, form: Format, output: str) -> int:
    async with existing_log(settings) as log:
        session = await find_session(log, meant)
        async with aclosing(export_session(log, session, form, version=__version__)) as pieces:
            if output == "-":
                shown = Screen(settings).width is not None
                async for piece in pieces:
                    sys.stdout.buffer.write(_fit(piece, form) if shown else piece)
                sys.stdout.buffer.flush()
                return 0
            size = 0
            with translated(output), replacing(Path(output)) as file:
                async for piece in pieces:
                    size += file.write(piece)
    Screen(settings, stderr=True).whole((f"wrote {session.id} to {output}: {size} bytes", "dim"))
    return 0


def _fit(piece: bytes, form: Format) -> bytes:
    """For a terminal, which must not be steered by what a session said."""
    if form in ("jsonl", "claude-code"):
        return escaped(piece)
    return clean(piece.decode("utf-8", "replace")).encode()
