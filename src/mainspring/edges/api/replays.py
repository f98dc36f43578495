"""Replays sessions of the API from their logs, without blocking other requests."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import anyio
from anyio import CapacityLimiter, to_thread
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.model_facts import ModelFacts
from mainspring.log.session_log import SessionLog
from mainspring.log.transfer import export_lines
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.session_reports import require_readable_log
from mainspring.service.sessions.sessions import Sessions
from mainspring.testing.replay import Facts, ReplayResult, catalog_facts, replay_file


class AskReplay(Struct, frozen=True, kw_only=True):
    start: Annotated[int, Meta(ge=1)] | None = None
    """Events up to this one are read from the log, not replayed; if absent, all are replayed."""


class ReplayReport(Struct, frozen=True, kw_only=True):
    session_id: str
    ok: bool
    calls: int
    """The number of model calls that were replayed."""
    call: int | None
    """The first model call that differs."""
    what: str | None
    diff: tuple[str, ...]


class Replays:
    """Replays sessions. No model is called and no tool runs: their results come from the log."""

    def __init__(self, sessions: Sessions, *, facts: Facts = catalog_facts) -> None:
        """`facts` looks up models; for those that it does not know, the catalog is used."""
        self._sessions = sessions
        self._facts = facts
        self._limiter = CapacityLimiter(1)

    async def replay(
        self, principal: Principal, session_id: str, request: AskReplay
    ) -> ReplayReport:
        """Replay a session in a thread with its own event loop, one at a time.

        Raises: NotFound, InvalidInput.
        """
        session = await self._sessions.row(principal, session_id)
        require_readable_log(session_id, session.head.seq)
        if request.start is not None and request.start > session.head.seq:
            raise InvalidInput(f"start: session {session_id} has {session.head.seq} events")
        async with self._limiter:
            with TemporaryDirectory(prefix="mainspring-replay-") as folder:
                recording = Path(folder) / "session.jsonl"
                await _export(self._sessions.log, session_id, recording)
                run = partial(replay_file, recording, start=request.start, facts=self._look_up)
                return _report(await to_thread.run_sync(run))

    def _look_up(self, name: str) -> ModelFacts:
        with suppress(InvalidInput):
            return self._facts(name)
        return catalog_facts(name)


async def _export(log: SessionLog, session_id: str, to: Path) -> None:
    async with await anyio.open_file(to, "wb") as file:
        async for line in export_lines(log, session_id):
            await file.write(line + b"\n")


def _report(replay_result: ReplayResult) -> ReplayReport:
    divergence = replay_result.divergence
    return ReplayReport(
        session_id=replay_result.session_id,
        ok=replay_result.ok,
        calls=replay_result.calls,
        call=None if divergence is None else divergence.call,
        what=None if divergence is None else divergence.what,
        diff=() if divergence is None else divergence.diff,
    )
