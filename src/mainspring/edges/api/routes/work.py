"""`/v1/environments/{environment_id}/work`: what workers of self-hosted environments ask for."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.self_hosted.work_item import (
    Heartbeat,
    HeartbeatParams,
    PollParams,
    QueueStats,
    StopParams,
    UpdateWorkItem,
    WorkItem,
)
from mainspring.service.self_hosted.work_queue import WorkQueue
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery

WORKER_ID_HEADER = "anthropic-worker-id"
_MAX_WORKER_ID_CHARS = 256


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
                summary="List the work items of an environment",
                query=ListWork,
                response_type=Page[WorkItem],
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=f"{every}/poll",
                handle=self.poll,
                summary="Poll for work, waiting a moment if there is none",
                query=PollParams,
                response_type=WorkItem | None,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=f"{every}/stats",
                handle=self.stats,
                summary="Get the number of waiting work items",
                response_type=QueueStats,
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Get a work item",
                response_type=WorkItem,
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Update the metadata of a work item",
                body=UpdateWorkItem,
                response_type=WorkItem,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/ack",
                handle=self.acknowledge,
                summary="Acknowledge a work item that was polled",
                response_type=WorkItem,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/heartbeat",
                handle=self.heartbeat,
                summary="Extend the lease of a work item",
                query=HeartbeatParams,
                response_type=Heartbeat,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=f"{one}/stop",
                handle=self.stop,
                summary="Stop a work item",
                body=StopParams,
                response_type=WorkItem,
                role="user",
                for_worker_keys=True,
            ),
        )

    async def list(self, call: ApiCall[ListWork, Empty]) -> Page[WorkItem]:
        environment_id = call["environment_id"]
        listing = ListQuery(
            limit=call.query.limit,
            page=call.query.page,
            parent=environment_id,
            include_archived=True,
        )
        return await self.queue.page(call.tenant, environment_id, listing)

    async def poll(self, call: ApiCall[PollParams, Empty]) -> WorkItem | None:
        worker_id = call.request.headers.get(WORKER_ID_HEADER)
        if worker_id is not None and not (
            len(worker_id) <= _MAX_WORKER_ID_CHARS and worker_id.isascii()
        ):
            raise InvalidInput(
                f"{WORKER_ID_HEADER}: {_MAX_WORKER_ID_CHARS} characters of ASCII at most"
            )
        return await self.queue.poll(
            call.tenant, call["environment_id"], call.query, worker_id=worker_id
        )

    async def stats(self, call: ApiCall[Empty, Empty]) -> QueueStats:
        return await self.queue.stats(call.tenant, call["environment_id"])

    async def get(self, call: ApiCall[Empty, Empty]) -> WorkItem:
        return await self.queue.get(call.tenant, call["environment_id"], call["work_id"])

    async def update(self, call: ApiCall[Empty, UpdateWorkItem]) -> WorkItem:
        return await self.queue.update(
            call.tenant, call["environment_id"], call["work_id"], call.body
        )

    async def acknowledge(self, call: ApiCall[Empty, Empty]) -> WorkItem:
        return await self.queue.acknowledge(call.tenant, call["environment_id"], call["work_id"])

    async def heartbeat(self, call: ApiCall[HeartbeatParams, Empty]) -> Heartbeat:
        return await self.queue.heartbeat(
            call.tenant, call["environment_id"], call["work_id"], call.query
        )

    async def stop(self, call: ApiCall[Empty, StopParams]) -> WorkItem:
        return await self.queue.stop(
            call.tenant,
            call["environment_id"],
            call["work_id"],
            force=call.body.force,
        )
