"""`/v1/mainspring/campaigns` and `/v1/mainspring/evolution`: campaigns that improve the agent of
the folder that the service runs in, and its versions."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.edges.api.route import ApiCall, Empty, PageQuery, route
from mainspring.improve.evolution.campaigns.campaign_views import (
    CampaignDetail,
    CampaignView,
    EvolutionStatus,
    VersionView,
)
from mainspring.service.evolution.campaigns import (
    CampaignEvents,
    CampaignEventsQuery,
    Campaigns,
    Pause,
    Promote,
    RollBack,
    StartCampaign,
)
from mainspring.service.storage.pagination import Page


@dataclass(frozen=True, slots=True)
class CampaignRoutes:
    campaigns: Campaigns

    @route("GET /v1/mainspring/campaigns", "List campaigns, newest first")
    async def list(self, call: ApiCall[PageQuery, Empty]) -> Page[CampaignView]:
        query = call.query
        return await self.campaigns.page(call.tenant, limit=query.limit, page=query.page)

    @route("POST /v1/mainspring/campaigns", "Start a campaign as `evolve.yaml` says")
    async def start(self, call: ApiCall[Empty, StartCampaign]) -> CampaignView:
        return await self.campaigns.start(call.tenant, sender=call.who.sender, key=call.attempt_id)

    @route(
        "GET /v1/mainspring/campaigns/{campaign_id}",
        "Get a campaign: signals, diagnosis, what was tried, and what the gate decided",
    )
    async def get(self, call: ApiCall[Empty, Empty]) -> CampaignDetail:
        return await self.campaigns.get(call.tenant, call["campaign_id"])

    @route("GET /v1/mainspring/campaigns/{campaign_id}/events", "List the events of a campaign")
    async def events(self, call: ApiCall[CampaignEventsQuery, Empty]) -> CampaignEvents:
        return await self.campaigns.events(call.tenant, call["campaign_id"], call.query)

    @route("POST /v1/mainspring/campaigns/{campaign_id}/resume", "Continue a paused campaign")
    async def resume(self, call: ApiCall[Empty, Empty]) -> CampaignView:
        return await self.campaigns.resume(call.tenant, call["campaign_id"])

    @route(
        "POST /v1/mainspring/campaigns/{campaign_id}/promote",
        "Use the version that a campaign has proved, as you have seen it",
    )
    async def promote(self, call: ApiCall[Empty, Promote]) -> VersionView:
        call.who.require_human()
        return await self.campaigns.promote(call.who, call["campaign_id"], call.body)

    @route("GET /v1/mainspring/evolution", "Get the agent's versions, and whether campaigns run")
    async def status(self, call: ApiCall[Empty, Empty]) -> EvolutionStatus:
        return await self.campaigns.status(call.tenant)

    @route("POST /v1/mainspring/evolution/rollback", "Restore a version of the agent")
    async def roll_back(self, call: ApiCall[Empty, RollBack]) -> VersionView:
        call.who.require_human()
        return await self.campaigns.roll_back(call.who, call.body)

    @route("POST /v1/mainspring/evolution/pause", "Stop all campaigns, or allow them again")
    async def pause(self, call: ApiCall[Empty, Pause]) -> EvolutionStatus:
        return await self.campaigns.pause(call.who, call.body)
