"""What a deleted session of the service leaves on this machine: its workspace and all beside it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.sandbox.session_uids import release_session_uid
from mainspring.config import Settings
from mainspring.core import ids
from mainspring.core.errors import NotFound, Stale
from mainspring.log.records import Records
from mainspring.service.sessions.record import KIND
from mainspring.service.work.dispatch import Job
from mainspring.wiring.environment import served_places
from mainspring.wiring.hands import Bench
from mainspring.wiring.mounts import mounted_file
from mainspring.wiring.session_skills import skills_folder
from mainspring.wiring.shares import remove_below, remove_hands, remove_share, remove_transcripts
from mainspring.wiring.worktrees import place_of

_LOG = logging.getLogger("mainspring.workspaces")
CLEAR = "clear"
EXPIRED = "-expired"
"""How the name of a workspace ends that is being removed."""


class Clearing:
    def __init__(
        self,
        settings: Settings,
        records: Records,
        bench: Bench,
        *,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._settings = settings
        self._records = records
        self._bench = bench
        self._new_id = new_id

    async def clear(self, job: Job) -> None:
        """Of the session whose id the job has for its key.

        Raises: Stale: it is still there; then it is tried again.
        """
        try:
            await self._records.get(KIND, job.key)
        except NotFound:
            await self._bench.dismiss(job.key)
            await to_thread.run_sync(self._remove, job.key)
        else:
            raise Stale(f"session {job.key} is still being deleted")

    async def remove_workspace(self, session_id: str) -> None:
        """Of a session that stays: it may go on in a new one, under the same uid, and its hooks may
        read its transcripts.

        Raises: OSError.
        """
        await self._bench.dismiss(session_id)
        await to_thread.run_sync(self._move_away, session_id)

    def _move_away(self, session_id: str) -> None:
        """In one step: no run finds half a workspace, whenever this process dies."""
        self._remove_beside(session_id)
        workspace = Path(self._settings.workspaces) / session_id
        expired = workspace.with_name(self._new_id(session_id) + EXPIRED)
        workspace.rename(expired)
        remove_expired(workspace.parent, expired.name)

    def _remove(self, session_id: str) -> None:
        self._remove_beside(session_id)
        places = served_places(self._settings, session_id)
        remove_transcripts(places.transcripts, session_id)
        folder = Path(self._settings.workspaces)
        if remove_below(folder, session_id):
            release_session_uid(session_id)
        else:  # nobody else may get the uid that has files there
            _LOG.warning("the workspace of session %s could not be removed whole", session_id)

    def _remove_beside(self, session_id: str) -> None:
        workspace = Path(self._settings.workspaces) / session_id
        places = served_places(self._settings, session_id)
        remove_below(places.snapshots.parent, places.snapshots.name)
        remove_hands(places.state.parent, session_id)
        remove_below(place_of(places, session_id).parent, session_id)
        remove_share(session_id)
        mounted_file(workspace).unlink(missing_ok=True)
        remove_below(workspace.parent, skills_folder(workspace).name)


def remove_expired(folder: Path, name: str) -> None:
    """A workspace that was moved away; what cannot be removed is tried again at the next sweep."""
    if not remove_below(folder, name):
        _LOG.warning("%s in %s could not be removed whole: remove it by hand", name, folder)
