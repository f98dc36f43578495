"""`/v1/mainspring/alarms`: alarms of suites, drills and service levels."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.edges.api.route import ApiCall, Empty, PageQuery, list_query, route
from mainspring.service.evals.alarms import Alarm, Alarms, AlarmStatus
from mainspring.service.storage.pagination import Page


class ListAlarms(PageQuery, frozen=True, kw_only=True):
    status: AlarmStatus | None = None


@dataclass(frozen=True, slots=True)
class AlarmRoutes:
    alarms: Alarms

    @route("GET /v1/mainspring/alarms", "List alarms of suites, drills and service levels")
    async def list(self, call: ApiCall[ListAlarms, Empty]) -> Page[Alarm]:
        listing = list_query(call.query, label=call.query.status)
        return await self.alarms.page(call.tenant, listing)

    @route("GET /v1/mainspring/alarms/{alarm_id}", "Get an alarm")
    async def get(self, call: ApiCall[Empty, Empty]) -> Alarm:
        return await self.alarms.get(call.tenant, call["alarm_id"])
