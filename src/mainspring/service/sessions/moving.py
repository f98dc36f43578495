"""Sessions that leave the service: sealed here, and handed over with what is in their workspace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct

from mainspring.core.errors import Stale
from mainspring.runtime.move_sessions.archive import check_size
from mainspring.runtime.move_sessions.bundle import Source, write_bundle
from mainspring.runtime.move_sessions.moving import seal
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.sessions import Sessions


class MoveSession(Struct, frozen=True, kw_only=True):
    transfer: Annotated[str, Meta(pattern=r"^[a-z]{4}_[0-9a-f]{32}$")]
    """Chosen by the receiver. The same again, and the same bundle is answered."""


class Moving:
    def __init__(
        self,
        sessions: Sessions,
        *,
        workspace: Callable[[str], Path],
        unseen: str,
        folder: Path,
    ) -> None:
        self._sessions = sessions
        self._workspace = workspace
        self._unseen = unseen
        """A folder of ours in every workspace."""
        self._folder = folder

    async def bundle(self, who: Principal, session_id: str, asked: MoveSession) -> Path:
        """A file with all of the session, for the caller to send and remove. From here on the
        session refuses turns.

        Raises: NotFound, Forbidden, TooLarge, Stale: it runs, or its files change; SessionGone: it
            has moved already.
        """
        who.require_human()
        record = await self._sessions.record(who, session_id)
        workspace, hidden = self._workspace(record.id), (self._unseen,)
        has_files = await to_thread.run_sync(workspace.is_dir)
        source = Source(
            session_id=record.id,
            transfer_id=asked.transfer,
            workspace=workspace if has_files else None,
            hidden=hidden,
        )
        try:
            if has_files:  # before it is sealed: afterwards there is no way back
                await to_thread.run_sync(partial(check_size, workspace, hidden=hidden))
            await seal(self._sessions.log, record.id, asked.transfer)
            return await write_bundle(self._sessions.log, source, self._folder)
        except OSError as error:
            raise Stale(
                f"the files of session {record.id} cannot be read as a whole ({error.strerror}):"
                " stop what changes them, and try again"
            ) from error
