"""`/v1/sessions/{session_id}/move` and `/v1/mainspring/transfers`: moving sessions out of and
into this service.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
from aiohttp import web
from anyio import open_file, to_thread

from mainspring.core import clock, ids
from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.edges.api.file_transfer import UploadLimiter
from mainspring.edges.api.route import ApiCall, Empty, route
from mainspring.service.sessions.session_transfer import (
    MoveSession,
    PushCheck,
    PushSession,
    SessionExport,
    SessionImport,
)
from mainspring.service.sessions.session_view import SessionObject

_CHUNK_BYTES = 1 << 20  # sent or received at once: 1 MiB
_TAR = "application/x-tar"
_UPLOAD_SECONDS = 3600.0
"""How long an upload may take to arrive."""
_STALE_UPLOAD_AGE = timedelta(days=1)  # older files of broken uploads are removed


@dataclass(frozen=True, slots=True)
class MoveRoutes:
    session_export: SessionExport
    session_import: SessionImport
    upload_limiter: UploadLimiter = field(
        default_factory=lambda: UploadLimiter(in_process=4, of_tenant=2)
    )

    @route(
        "GET /v1/mainspring/transfers",
        "Check whether a session can be moved here",
        role="user",
        for_agent_keys=True,
    )
    async def check(self, call: ApiCall[PushSession, Empty]) -> PushCheck:
        return await self.session_import.check(call.who, call.query)

    @route(
        "POST /v1/mainspring/transfers",
        "Upload a session with its workspace, to continue it here",
        role="user",
        for_agent_keys=True,
        upload=_TAR,
    )
    async def receive(self, call: ApiCall[PushSession, Empty]) -> SessionObject:
        if call.request.content_type != _TAR:
            raise InvalidInput(f"the request must be {_TAR}, not {call.request.content_type}")
        await self.session_import.check(call.who, call.query)  # before the body is read
        async with self.upload_limiter.slot(call.tenant):
            file = await to_thread.run_sync(self._new_file)
            try:
                with anyio.fail_after(_UPLOAD_SECONDS):
                    await _save_upload(call.request, file, self.session_import.limits.max_bytes)
                await call.recheck_access()  # the key may have been revoked meanwhile
                return await self.session_import.receive(call.who, call.query, file)
            finally:
                await to_thread.run_sync(partial(file.unlink, missing_ok=True))

    def _new_file(self) -> Path:
        folder = self.session_import.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.session_import.remove_leftovers(before=clock.now() - _STALE_UPLOAD_AGE)
        return folder / f"{ids.new_id('upload')}.tar"

    @route(
        "POST /v1/sessions/{session_id}/move",
        "End a session here and download it, to continue it elsewhere",
        media_type=_TAR,
        is_extension=True,
    )
    async def move(self, call: ApiCall[Empty, MoveSession]) -> web.StreamResponse:
        bundle = await self.session_export.bundle(call.who, call["session_id"], call.body)
        try:
            response = web.StreamResponse(headers={"content-type": _TAR})
            async with await open_file(bundle, "rb") as file:
                response.content_length = (await to_thread.run_sync(bundle.stat)).st_size
                await response.prepare(call.request)
                while piece := await file.read(_CHUNK_BYTES):
                    await response.write(piece)
            await response.write_eof()
            return response
        finally:
            await to_thread.run_sync(bundle.unlink, True)


async def _save_upload(request: web.Request, file: Path, max_bytes: int) -> None:
    """Raises: TooLarge."""
    too_large = TooLarge(f"a pushed session may have at most {max_bytes:,} bytes")
    if (request.content_length or 0) > max_bytes:
        raise too_large
    flags, size = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0
    with os.fdopen(os.open(file, flags, 0o600), "wb") as out:
        while piece := await request.content.read(_CHUNK_BYTES):
            size += len(piece)
            if size > max_bytes:
                raise too_large
            await to_thread.run_sync(out.write, piece)
