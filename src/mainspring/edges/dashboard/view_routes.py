"""`/v1/mainspring/sessions`, `/v1/mainspring/changes` and `/v1/sessions/{session_id}/log`: sessions
as lines, what changed, and logs in windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from aiohttp import web
from msgspec import Meta, Struct

from mainspring.edges.api.route import ApiCall, Empty, RouteOptions, route
from mainspring.edges.api.routes.run.events import LAST_EVENT_ID_HEADER, log_position
from mainspring.edges.api.sse import STREAM_TIMING, StreamTiming, send_stream
from mainspring.service.sessions.events.event_streams import EventStreams, StreamRequest
from mainspring.service.sessions.events.preview_deltas import PreviewKind
from mainspring.service.sessions.session_listing import ListSessions, TwoWayPage
from mainspring.service.storage.pagination import Page
from mainspring.service.views.change_feed import ChangeFeed, Changes, ChangesQuery
from mainspring.service.views.listed_sessions import (
    FoundSession,
    ListedSession,
    ListedSessions,
    SearchSessions,
)
from mainspring.service.views.log_windows import (
    DEFAULT_TEXT_CHARS,
    FoundEvent,
    LogRenderer,
    LogWindow,
    LogWindows,
    SearchLog,
    TextChars,
    WindowQuery,
)
from mainspring.service.views.session_files import (
    DiffQuery,
    FilesDiff,
    FilesOfSessions,
    ListSnapshots,
    RewindFiles,
    RewoundFiles,
    SnapshotLine,
)

_IMAGES = {
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
"""Blobs that begin so are sent as images; all others as downloads."""
BLOB_HEADERS = {"content-security-policy": "default-src 'none'; sandbox"}


@dataclass(frozen=True, slots=True)
class ListedSessionRoutes:
    listed: ListedSessions
    route_options: ClassVar[RouteOptions] = {"for_agent_keys": True}

    @route(
        "GET /v1/mainspring/sessions",
        "List sessions as lines: what each does now or why it waits, and its cost",
    )
    async def list(self, call: ApiCall[ListSessions, Empty]) -> TwoWayPage[ListedSession]:
        return await self.listed.page(call.who, call.query)

    @route("GET /v1/mainspring/search", "Search the texts of all sessions")
    async def search(self, call: ApiCall[SearchSessions, Empty]) -> Page[FoundSession]:
        return await self.listed.search(call.who, call.query)


@dataclass(frozen=True, slots=True)
class ChangeRoutes:
    feed: ChangeFeed
    stream_timing: StreamTiming = STREAM_TIMING
    route_options: ClassVar[RouteOptions] = {"for_agent_keys": True}

    @route("GET /v1/mainspring/changes", "Get the sessions and approvals that changed")
    async def changes(self, call: ApiCall[ChangesQuery, Empty]) -> Changes:
        return await self.feed.changes(call.who, call.query)

    @route(
        "GET /v1/mainspring/changes/stream",
        "Stream the sessions and approvals that change",
        media_type="text/event-stream",
    )
    async def stream(self, call: ApiCall[ChangesQuery, Empty]) -> web.StreamResponse:
        after = log_position(call.request.headers.get(LAST_EVENT_ID_HEADER), call.query.after)
        stream = self.feed.open(call.who, after)
        try:
            return await send_stream(
                call.request, stream, self.stream_timing, check_access=call.recheck_access
            )
        finally:
            self.feed.release(stream)


class StreamLog(Struct, frozen=True, kw_only=True):
    after: Annotated[int, Meta(ge=0)] | None = None
    """Start after this event. The header `Last-Event-ID` takes precedence."""
    max_text: TextChars = DEFAULT_TEXT_CHARS
    event_deltas: tuple[PreviewKind, ...] = ()


class EventDetailQuery(Struct, frozen=True, kw_only=True):
    seq: Annotated[int, Meta(ge=1)]


class BlobQuery(Struct, frozen=True, kw_only=True):
    hash: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class LogRoutes:
    windows: LogWindows
    event_streams: EventStreams
    stream_timing: StreamTiming = STREAM_TIMING
    route_options: ClassVar[RouteOptions] = {"is_extension": True}

    @route(
        "GET /v1/sessions/{session_id}/log",
        "Read the log of a session in windows bounded in bytes, backwards from its end",
    )
    async def window(self, call: ApiCall[WindowQuery, Empty]) -> LogWindow:
        return await self.windows.window(call.who, call["session_id"], call.query)

    @route(
        "GET /v1/sessions/{session_id}/log/stream",
        "Stream the log of a session",
        media_type="text/event-stream",
    )
    async def stream(self, call: ApiCall[StreamLog, Empty]) -> web.StreamResponse:
        await self.windows.sessions.record(call.who, call["session_id"])
        query = call.query
        options = StreamRequest(
            tenant=call.tenant,
            session_id=call["session_id"],
            after=log_position(call.request.headers.get(LAST_EVENT_ID_HEADER), query.after),
            previews=frozenset(query.event_deltas),
            is_internal=True,
            renderer=LogRenderer(self.windows.log, query.max_text),
        )
        async with self.event_streams.open(options) as stream:
            return await send_stream(
                call.request, stream, self.stream_timing, check_access=call.recheck_access
            )

    @route("GET /v1/sessions/{session_id}/log/search", "Search the texts of a session")
    async def search(self, call: ApiCall[SearchLog, Empty]) -> Page[FoundEvent]:
        return await self.windows.search(call.who, call["session_id"], call.query)

    @route(
        "GET /v1/sessions/{session_id}/log/event",
        "Download the whole payload of an event",
        response_type=dict[str, object],
    )
    async def event(self, call: ApiCall[EventDetailQuery, Empty]) -> web.Response:
        seq = call.query.seq
        body = await self.windows.body(call.who, call["session_id"], seq)
        return web.Response(
            body=body,
            content_type="application/json",
            headers={
                **BLOB_HEADERS,
                "content-disposition": f'attachment; filename="event-{seq}.json"',
            },
        )

    @route(
        "GET /v1/sessions/{session_id}/log/blob",
        "Download a blob that a session refers to, such as a long result or an image",
        media_type="application/octet-stream",
    )
    async def blob(self, call: ApiCall[BlobQuery, Empty]) -> web.Response:
        digest = call.query.hash
        content = await self.windows.blob(call.who, call["session_id"], digest)
        image = next((t for begin, t in _IMAGES.items() if content.startswith(begin)), None)
        shown = "attachment" if image is None else "inline"
        return web.Response(
            body=content,
            content_type=image or "application/octet-stream",
            headers={
                **BLOB_HEADERS,
                "content-disposition": f'{shown}; filename="{digest[:16]}"',
                "cache-control": "private, max-age=86400, immutable",
            },
        )


@dataclass(frozen=True, slots=True)
class FileViewRoutes:
    files: FilesOfSessions
    route_options: ClassVar[RouteOptions] = {"is_extension": True}

    @route(
        "GET /v1/sessions/{session_id}/snapshots",
        "List the snapshots of a session's files, newest first",
    )
    async def snapshots(self, call: ApiCall[ListSnapshots, Empty]) -> Page[SnapshotLine]:
        return await self.files.snapshots(call.who, call["session_id"], call.query)

    @route(
        "GET /v1/sessions/{session_id}/snapshots/diff",
        "Compare a session's files at two of its events, or with how they are now",
    )
    async def diff(self, call: ApiCall[DiffQuery, Empty]) -> FilesDiff:
        return await self.files.diff(call.who, call["session_id"], call.query)

    @route(
        "POST /v1/sessions/{session_id}/rewind",
        "Restore a session's files to what they were after an event",
    )
    async def rewind(self, call: ApiCall[Empty, RewindFiles]) -> RewoundFiles:
        call.who.require_human()
        return await self.files.rewind(call.who, call["session_id"], call.body)
