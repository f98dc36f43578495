"""`/v1/sessions/{session_id}/move`."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web
from anyio import open_file, to_thread

from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.sessions.moving import MoveSession, Moving

_CHUNK = 1 << 20
_TAR = "application/x-tar"


@dataclass(frozen=True, slots=True)
class MoveRoutes:
    moving: Moving

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path="/v1/sessions/{session_id}/move",
                handle=self.move,
                summary="End a session here, and download it with its workspace to go on elsewhere",
                body=MoveSession,
                media_type=_TAR,
                role="user",
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def move(self, call: Call[Nothing, MoveSession]) -> web.StreamResponse:
        bundle = await self.moving.bundle(call.who, call["session_id"], call.body)
        try:
            response = web.StreamResponse(headers={"content-type": _TAR})
            async with await open_file(bundle, "rb") as file:
                response.content_length = (await to_thread.run_sync(bundle.stat)).st_size
                await response.prepare(call.request)
                while piece := await file.read(_CHUNK):
                    await response.write(piece)
            await response.write_eof()
            return response
        finally:
            await to_thread.run_sync(bundle.unlink, True)
