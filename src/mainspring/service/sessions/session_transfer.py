"""Moving sessions between machines: exports a session as one sealed bundle; checks an uploaded
bundle and writes it to the log here.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from tarfile import TarError
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import ids
from mainspring.core.errors import (
    AlreadyExists,
    InvalidInput,
    NotFound,
    SessionExists,
    SessionNotFound,
    StaleVersion,
    TooLarge,
)
from mainspring.core.events import SessionMoved
from mainspring.core.ids import AgentId, EnvironmentId, ExternalId
from mainspring.core.sender import Origin
from mainspring.runtime.import_sessions.import_store import store_new_session
from mainspring.runtime.import_sessions.source_session import SourceSession
from mainspring.runtime.move_sessions.session_bundle import (
    BundleSource,
    SessionBundle,
    UploadLimits,
    open_checked,
    write_bundle,
)
from mainspring.runtime.move_sessions.session_handover import seal
from mainspring.runtime.move_sessions.uploaded_conversation import read_conversation
from mainspring.runtime.move_sessions.workspace_archive import check_size
from mainspring.runtime.session.session_paths import SERVED_STATE_FOLDER
from mainspring.service.access.principal import Principal
from mainspring.service.resources.environments import SelfHostedConfig
from mainspring.service.sessions.session_params import CreateSession
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_view import SessionObject, session_object
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.repository import Notification

_BAD_PATH_ERRNOS = frozenset(
    {
        errno.EEXIST,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
    }
)
"""Errors of a hostile archive: duplicate names, names below files, missing folders, long names."""
_ID_PATTERN = re.compile(r"[a-z]{4}_[0-9a-f]{32}", re.ASCII)


class PushSession(Struct, frozen=True, kw_only=True):
    transfer: str
    """Chosen by the sender. The same value always returns the same session."""
    session_id: ExternalId
    """The id of the session at its origin."""
    agent_id: AgentId
    """The agent that continues it here."""
    environment_id: EnvironmentId
    size: Annotated[int, Meta(ge=0)] = 0
    """The approximate size of the upload in bytes."""


class PushCheck(Struct, frozen=True, kw_only=True):
    """Whether a session can be pushed, checked before it ends at its origin."""

    session_id: str
    """The id that the session has here."""
    is_received: bool
    """Whether this transfer is complete already."""


class SessionImport:
    def __init__(
        self,
        sessions: Sessions,
        *,
        workspace: Callable[[str], Path],
        hidden: str,
        folder: Path,
        limits: UploadLimits | None = None,
    ) -> None:
        self._sessions = sessions
        self._workspace = workspace
        self._hidden = hidden
        """The private folder in every workspace, which is not unpacked."""
        self.folder = folder
        """The folder of uploads in progress."""
        self.limits = limits or UploadLimits()

    async def check(self, principal: Principal, request: PushSession) -> PushCheck:
        """Check whether a session can be pushed; stores nothing.

        Raises: Forbidden, NotFound, InvalidInput, TooLarge.
        """
        session_id = received_id(principal.tenant, request.transfer)
        try:
            await self._find_received(principal, session_id)
        except NotFound:
            await self._new_record(principal, request)
            return PushCheck(session_id=session_id, is_received=False)
        return PushCheck(session_id=session_id, is_received=True)

    async def receive(
        self, principal: Principal, request: PushSession, file: Path
    ) -> SessionObject:
        """Import a session from this file and continue it here. Repeating it changes nothing.

        Raises: Forbidden, NotFound, InvalidInput, TooLarge: the session does not continue here.
        """
        session_id = received_id(principal.tenant, request.transfer)
        try:
            return await self._find_received(principal, session_id)
        except NotFound:
            record = replace(await self._new_record(principal, request), id=session_id)
        workspace = self._workspace(session_id)
        try:
            source = await to_thread.run_sync(partial(self._unpack, request, file, workspace))
        except (TarError, EOFError) as error:
            raise InvalidInput(f"the received file is not a session bundle: {error}") from error
        await self._store(principal, record, source)
        try:
            await self._sessions.repository.put(
                principal.tenant, replace(record, title=source.title)
            )
        except AlreadyExists:  # the same transfer was imported concurrently
            return await self._sessions.get(principal, session_id)
        notice = Notification(tenant=principal.tenant, type="session.created", id=session_id)
        await self._sessions.dependencies.notify(notice)
        if source.main.open_calls:  # the rules here decide about these calls
            await self._sessions.dependencies.wake_session(principal.tenant, record)
        return await self._sessions.get(principal, session_id)

    async def _find_received(self, principal: Principal, session_id: str) -> SessionObject:
        """Raises: NotFound."""
        session = await self._sessions.find(principal, session_id)
        if session.status == "running":  # the process that should wake it may have been killed
            await self._sessions.dependencies.wake_session(principal.tenant, session.record)
        return session_object(session, self._sessions.clock())

    async def _new_record(self, principal: Principal, request: PushSession) -> SessionRecord:
        principal.require_human()
        if not _ID_PATTERN.fullmatch(request.transfer) or not _ID_PATTERN.fullmatch(
            request.session_id
        ):
            raise InvalidInput("transfer, session_id: four letters, `_`, 32 hexadecimal digits")
        if request.size > self.limits.max_bytes:
            raise TooLarge(
                f"the session and its files have {request.size:,} bytes; this server takes"
                f" {self.limits.max_bytes:,} at most"
            )
        creation = CreateSession(agent=request.agent_id, environment_id=request.environment_id)
        record = await self._sessions.new_record(principal, creation)
        if isinstance(record.environment, SelfHostedConfig):
            raise InvalidInput(
                f"environment_id: {record.environment_id} is self-hosted, and its files are not"
                " this server's; choose a cloud environment"
            )
        return replace(record, origin=Origin(type="api", id=principal.key_id))

    def _unpack(self, request: PushSession, file: Path, workspace: Path) -> SourceSession:
        limits = self.limits
        with open_checked(file, limits) as archive:
            bundle = SessionBundle.read(
                archive, session_id=request.session_id, transfer_id=request.transfer
            )
            log = bundle.read_log(max_bytes=limits.max_log_bytes, max_events=limits.max_events)
            source = read_conversation(log.events, thread_id=log.header.thread_id, blobs=log.blobs)
            source.id, source.sha256 = request.session_id, bundle.bundle_manifest.log
            _move_workspace(
                bundle, workspace, beside=file.with_suffix(".files"), hidden=self._hidden
            )
        return source

    async def _store(
        self, principal: Principal, record: SessionRecord, source: SourceSession
    ) -> None:
        log, now = self._sessions.log, self._sessions.clock()
        try:
            await log.session(record.id)  # exists if an earlier attempt was interrupted
        except SessionNotFound:
            with suppress(SessionExists):
                await store_new_session(
                    log, source, session_id=record.id, now=now, importer=principal.sender
                )

    def remove_leftovers(self, *, before: datetime) -> None:
        """Remove uploads that a killed server left behind."""
        for path in self.folder.glob("upload_*"):
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime < before.timestamp():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def received_id(tenant: str, transfer_id: str) -> str:
    return ids.stable_id(ids.SESSION, "push", tenant, transfer_id)


def _move_workspace(bundle: SessionBundle, workspace: Path, *, beside: Path, hidden: str) -> None:
    """Unpack the workspace, completely or not at all. An existing one belongs to this transfer.

    Raises: InvalidInput, TooLarge.
    """
    try:
        try:
            bundle.unpack_workspace(beside, hidden=(hidden,))
        except OSError as error:
            if error.errno not in _BAD_PATH_ERRNOS:
                raise
            raise InvalidInput(f"the files cannot be unpacked: {error.strerror}") from error
        workspace.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        try:
            if not workspace.exists():
                beside.rename(workspace)
        except OSError:
            if not workspace.is_dir():  # else the same transfer was faster
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class MoveSession(Struct, frozen=True, kw_only=True):
    transfer: Annotated[str, Meta(pattern=r"^[a-z]{4}_[0-9a-f]{32}$", max_length=37)]
    """Chosen by the receiver. The same value always returns the same bundle."""


@dataclass(frozen=True, slots=True)
class SessionExport:
    sessions: Sessions
    workspace: Callable[[str], Path]
    unseen: str
    """The private folder in every workspace, which is not exported."""
    folder: Path

    async def bundle(self, principal: Principal, session_id: str, request: MoveSession) -> Path:
        """A file with the whole session, for the caller to send and remove. Afterwards the session
        refuses turns.

        Raises: NotFound, Forbidden, TooLarge, StaleVersion: it runs, or its files change;
            SessionGone: it has already moved.
        """
        principal.require_human()
        record = await self.sessions.record(principal, session_id)
        workspace, hidden = self.workspace(record.id), (self.unseen,)
        has_files = await to_thread.run_sync(workspace.is_dir)
        source = BundleSource(
            session_id=record.id,
            transfer_id=request.transfer,
            workspace=workspace if has_files else None,
            hidden=hidden,
        )
        try:
            [last] = await self.sessions.log.tail(record.id, 1)
            is_sealed = isinstance(last.payload, SessionMoved)
            if has_files and not is_sealed:  # before the seal, which cannot be undone
                await to_thread.run_sync(partial(check_size, workspace, hidden=hidden))
            await seal(self.sessions.log, record.id, request.transfer)
            return await write_bundle(self.sessions.log, source, self.folder)
        except OSError as error:
            raise StaleVersion(
                f"the files of session {record.id} cannot be read as a whole ({error.strerror}):"
                " stop what changes them, and try again"
            ) from error


def build_transfers(
    sessions: Sessions, workspaces: Path, private_folder: str
) -> tuple[SessionExport, SessionImport]:
    """`private_folder`: the folder in every workspace that is not moved."""
    workspaces = workspaces.resolve()
    folder = workspaces / SERVED_STATE_FOLDER / "transfers"

    def workspace(session_id: str) -> Path:
        return workspaces / session_id

    return (
        SessionExport(sessions, workspace=workspace, unseen=private_folder, folder=folder),
        SessionImport(sessions, workspace=workspace, hidden=private_folder, folder=folder),
    )
