"""`/v1/environments/{environment_id}/work`: the work queue of self-hosted workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mainspring.core.errors import InvalidInput
from mainspring.edges.api.route import ApiCall, Empty, PageQuery, RouteOptions, list_query, route
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
from mainspring.service.storage.pagination import Page

WORKER_ID_HEADER = "anthropic-worker-id"
_MAX_WORKER_ID_CHARS = 256  # of a worker's name


@dataclass(frozen=True, slots=True)
class WorkRoutes:
    queue: WorkQueue
    route_options: ClassVar[RouteOptions] = {"for_worker_keys": True}

    @route("GET /v1/environments/{environment_id}/work", "List the work items of an environment")
    async def list(self, call: ApiCall[PageQuery, Empty]) -> Page[WorkItem]:
        environment_id = call["environment_id"]
        listing = list_query(call.query, parent=environment_id, include_archived=True)
        return await self.queue.page(call.tenant, environment_id, listing)

    @route(
        "GET /v1/environments/{environment_id}/work/poll",
        "Poll for work, waiting a moment if there is none",
        role="user",
    )
    async def poll(self, call: ApiCall[PollParams, Empty]) -> WorkItem | None:
        worker_id = call.request.headers.get(WORKER_ID_HEADER)
        if worker_id is not None and not (
            len(worker_id) <= _MAX_WORKER_ID_CHARS and worker_id.isascii()
        ):
            raise InvalidInput(
                f"{WORKER_ID_HEADER}: {_MAX_WORKER_ID_CHARS} ASCII characters at most"
            )
        return await self.queue.poll(
            call.tenant, call["environment_id"], call.query, worker_id=worker_id
        )

    @route(
        "GET /v1/environments/{environment_id}/work/stats", "Get the number of waiting work items"
    )
    async def stats(self, call: ApiCall[Empty, Empty]) -> QueueStats:
        return await self.queue.stats(call.tenant, call["environment_id"])

    @route("GET /v1/environments/{environment_id}/work/{work_id}", "Get a work item")
    async def get(self, call: ApiCall[Empty, Empty]) -> WorkItem:
        return await self.queue.get(call.tenant, call["environment_id"], call["work_id"])

    @route(
        "POST /v1/environments/{environment_id}/work/{work_id}",
        "Update the metadata of a work item",
        role="user",
    )
    async def update(self, call: ApiCall[Empty, UpdateWorkItem]) -> WorkItem:
        return await self.queue.update(
            call.tenant, call["environment_id"], call["work_id"], call.body
        )

    @route(
        "POST /v1/environments/{environment_id}/work/{work_id}/ack",
        "Acknowledge a work item that was polled",
        role="user",
    )
    async def acknowledge(self, call: ApiCall[Empty, Empty]) -> WorkItem:
        return await self.queue.acknowledge(call.tenant, call["environment_id"], call["work_id"])

    @route(
        "POST /v1/environments/{environment_id}/work/{work_id}/heartbeat",
        "Extend the lease of a work item",
        role="user",
    )
    async def heartbeat(self, call: ApiCall[HeartbeatParams, Empty]) -> Heartbeat:
        return await self.queue.heartbeat(
            call.tenant, call["environment_id"], call["work_id"], call.query
        )

    @route(
        "POST /v1/environments/{environment_id}/work/{work_id}/stop",
        "Stop a work item",
        role="user",
    )
    async def stop(self, call: ApiCall[Empty, StopParams]) -> WorkItem:
        return await self.queue.stop(
            call.tenant,
            call["environment_id"],
            call["work_id"],
            force=call.body.force,
        )
