"""`/v1/environments/{environment_id}/work`: what workers of self-hosted environments ask for."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.keeping.drawer import Listing
from mainspring.service.keeping.page import Limit, Page
from mainspring.service.self_hosted.item import (
    BeatWork,
    Heartbeat,
    PollWork,
    QueueStats,
    StopWork,
    UpdateWork,
    Work,
)
from mainspring.service.self_hosted.queue import WorkQueue

WORKER_ID = "anthropic-worker-id"
_MOST_WORKER_ID = 256


class ListWork(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None


@dataclass(frozen=True, slots=True)
class WorkRoutes:
    queue: WorkQueue

    def routes(self) -> tuple[Route, ...]:
        every = "/v1/environments/{environment_id}/work"
        one = f"{every}/{{work_id}}"
        return (
            Route(
                method="GET",
                path=every,
                handle=self.list,
                summary="List the work of an environment",
                query=ListWork,
                answer=Page[Work],
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=f"{every}/poll",
                handle=self.poll,
                summary="Ask for work, and wait for it a moment",
                query=PollWork,
                answer=Work | None,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=f"{every}/stats",
                handle=self.stats,
                summary="How much work waits",
                answer=QueueStats,
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at an item of work",
                answer=Work,
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Change the metadata of an item of work",
                body=UpdateWork,
                answer=Work,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/ack",
                handle=self.acknowledge,
                summary="Take an item of work that was polled",
                answer=Work,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/heartbeat",
                handle=self.heartbeat,
                summary="Keep an item of work",
                query=BeatWork,
                answer=Heartbeat,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/stop",
                handle=self.stop,
                summary="Stop an item of work",
                body=StopWork,
                answer=Work,
                role="user",
                for_worker_keys=True,
            ),
        )

    async def list(self, call: Call[ListWork, Nothing]) -> Page[Work]:
        environment_id = call["environment_id"]
        listing = Listing(
            limit=call.query.limit,
            page=call.query.page,
            parent=environment_id,
            include_archived=True,
        )
        return await self.queue.page(call.tenant, environment_id, listing)

    async def poll(self, call: Call[PollWork, Nothing]) -> Work | None:
        worker_id = call.request.headers.get(WORKER_ID)
        if worker_id is not None and not (
            len(worker_id) <= _MOST_WORKER_ID and worker_id.isascii()
        ):
            raise InvalidInput(f"{WORKER_ID}: {_MOST_WORKER_ID} characters of ASCII at most")
        return await self.queue.poll(
            call.tenant, call["environment_id"], call.query, worker_id=worker_id
        )

    async def stats(self, call: Call[Nothing, Nothing]) -> QueueStats:
        return await self.queue.stats(call.tenant, call["environment_id"])

    async def get(self, call: Call[Nothing, Nothing]) -> Work:
        return await self.queue.get(call.tenant, call["environment_id"], call["work_id"])

    async def update(self, call: Call[Nothing, UpdateWork]) -> Work:
        return await self.queue.update(
            call.tenant, call["environment_id"], call["work_id"], call.body
        )

    async def acknowledge(self, call: Call[Nothing, Nothing]) -> Work:
        return await self.queue.acknowledge(call.tenant, call["environment_id"], call["work_id"])

    async def heartbeat(self, call: Call[BeatWork, Nothing]) -> Heartbeat:
        return await self.queue.heartbeat(
            call.tenant, call["environment_id"], call["work_id"], call.query
        )

    async def stop(self, call: Call[Nothing, StopWork]) -> Work:
        return await self.queue.stop(
            call.tenant, call["environment_id"], call["work_id"], force=call.body.force
        )
