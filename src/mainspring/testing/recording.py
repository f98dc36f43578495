"""Recordings of sessions, for tests that replay them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio

from mainspring.log.transfer import export_lines
from mainspring.wiring.runtime_assembly import open_runtime


def record(session_id: str, file: str | Path, *, store: str | None = None) -> None:
    """Write a session to a file that `replay_file` and `recorded_session` read. Blocks.

    Raises:
        SessionNotFound.
    """
    anyio.run(partial(_record, session_id, Path(file), store))


async def _record(session_id: str, file: Path, store: str | None) -> None:
    async with open_runtime(store=store) as runtime:
        lines = [line async for line in export_lines(runtime.log, session_id)]
    await anyio.Path(file).write_bytes(b"".join(line + b"\n" for line in lines))
