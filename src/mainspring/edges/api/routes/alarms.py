"""`/v1/mainspring/alarms`: alarms of suites, drills and service levels."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, route
from mainspring.service.evals.alarms import Alarm, Alarms, AlarmStatus
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery


class ListAlarms(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None
    status: AlarmStatus | None = None


@dataclass(frozen=True, slots=True)
class AlarmRoutes:
    alarms: Alarms

    @route("GET /v1/mainspring/alarms", "List alarms of suites, drills and service levels")
    async def list(self, call: ApiCall[ListAlarms, Empty]) -> Page[Alarm]:
        query = call.query
        listing = ListQuery(limit=query.limit, page=query.page, label=query.status)
        return await self.alarms.page(call.tenant, listing)

    @route("GET /v1/mainspring/alarms/{alarm_id}", "Get an alarm")
    async def get(self, call: ApiCall[Empty, Empty]) -> Alarm:
        return await self.alarms.get(call.tenant, call["alarm_id"])
