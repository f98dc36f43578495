"""What `mainspring sessions export` does."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path

from mainspring import __version__
from mainspring.config import Settings
from mainspring.edges.cli.atomic_files import atomic_write, file_errors
from mainspring.edges.cli.printing import Screen, escape_json, sanitize_text
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.runtime.export_sessions.exporter import ExportFormat, export_session


async def export(settings: Settings, *, meant: str, form: ExportFormat, output: str) -> int:
    async with open_existing_log(settings) as log:
        session = await find_session(log, meant)
        async with aclosing(export_session(log, session, form, version=__version__)) as pieces:
            if output == "-":
                shown = Screen(settings).width is not None
                async for piece in pieces:
                    sys.stdout.buffer.write(_terminal_safe(piece, form) if shown else piece)
                sys.stdout.buffer.flush()
                return 0
            size = 0
            with file_errors(output), atomic_write(Path(output)) as file:
                async for piece in pieces:
                    size += file.write(piece)
    Screen(settings, stderr=True).paragraph(
        (f"wrote {session.id} to {output}: {size} bytes", "dim")
    )
    return 0


def _terminal_safe(piece: bytes, form: ExportFormat) -> bytes:
    """For a terminal, which must not be steered by what a session said."""
    if form in ("jsonl", "claude-code"):
        return escape_json(piece)
    return sanitize_text(piece.decode("utf-8", "replace")).encode()
