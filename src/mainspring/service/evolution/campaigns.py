"""Campaigns on the agent of the folder that the service runs in: started by people and deployments,
run as jobs, shown from the log. They belong to the tenant of that folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import Meta, Struct

from mainspring.core import ids
from mainspring.core.errors import InvalidInput, LeaseHeld, MainspringError, NotFound, StoreFailed
from mainspring.core.lazy_module import LazyModule
from mainspring.core.sender import Sender
from mainspring.log.session_log import SessionLog
from mainspring.service.access.principal import Principal
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.schedules.local_schedule import TENANT
from mainspring.service.storage.pagination import Page, Position, cut_page, decode_cursor
from mainspring.service.views.log_windows import DEFAULT_TEXT_CHARS, LogEvent, TextChars, log_event

if TYPE_CHECKING:
    from mainspring.improve.evolution.campaigns import campaign_log, campaign_views
    from mainspring.improve.evolution.campaigns.campaign_views import (
        CampaignDetail,
        CampaignView,
        EvolutionStatus,
        VersionView,
    )
    from mainspring.improve.evolution.folder_campaigns import FolderCampaigns
else:
    campaign_log = LazyModule("mainspring.improve.evolution.campaigns.campaign_log")
    campaign_views = LazyModule("mainspring.improve.evolution.campaigns.campaign_views")

TASK = "campaign"
_MAX_EVENTS = 500  # of a campaign on one page


OpenCampaigns: TypeAlias = "Callable[[Sender | None], AbstractAsyncContextManager[FolderCampaigns]]"
"""Opens the campaigns of the folder for who asks for it; `None`: the service itself."""


class StartCampaign(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Starts a campaign as `evolve.yaml` of the folder says."""


class Promote(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    diff_hash: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """The hash of the change that you have seen: `diff_hash` of the campaign."""


class RollBack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Annotated[int, Meta(ge=1)] | None = None
    """The version to restore. Default: the one before the version in use."""
    reason: Annotated[str, Meta(min_length=1, max_length=500)] = "by hand"


class Pause(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    is_paused: bool
    reason: Annotated[str, Meta(max_length=500)] = ""


class CampaignEventsQuery(Struct, frozen=True, kw_only=True):
    after: Annotated[int, Meta(ge=0)] = 0
    """Only events after this one."""
    limit: Annotated[int, Meta(ge=1, le=_MAX_EVENTS)] = 200
    max_text: TextChars = DEFAULT_TEXT_CHARS
    """Longer texts are cut after so many characters."""


class CampaignEvents(Struct, frozen=True, kw_only=True):
    data: list[LogEvent]
    """Oldest first."""
    has_after: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaigns:
    log: SessionLog
    put: PutJob
    folder: Path
    open_campaigns: OpenCampaigns
    tenant: str = TENANT
    """The tenant that the folder belongs to."""

    @property
    def agent(self) -> str:
        return campaign_log.agent_of(self.folder)

    async def page(self, tenant: str, *, limit: int, page: str | None) -> Page[CampaignView]:
        """The campaigns, newest first."""
        if tenant != self.tenant:
            return Page(data=[])
        created = (await campaign_log.list_campaigns(self.log, self.agent))[::-1]
        (skipped,) = decode_cursor(page, tuple[Position]) if page else (0,)
        chosen = created[skipped : skipped + limit + 1]
        views = [
            campaign_views.campaign_view(
                await campaign_log.read_campaign(self.log, item.campaign_id)
            )
            for item in chosen
        ]
        return cut_page(views, limit, lambda _: (skipped + limit,))

    async def get(self, tenant: str, campaign_id: str) -> CampaignDetail:
        """Raises: NotFound."""
        await self._require(tenant, campaign_id)
        campaign = await campaign_log.read_campaign(self.log, campaign_id)
        return await campaign_views.campaign_detail(self.log, campaign)

    async def events(
        self, tenant: str, campaign_id: str, query: CampaignEventsQuery
    ) -> CampaignEvents:
        """Raises: NotFound."""
        await self._require(tenant, campaign_id)
        session_id = campaign_log.campaign_session(campaign_id)
        events = await self.log.read(session_id, after=query.after, limit=query.limit + 1)
        return CampaignEvents(
            data=[log_event(event, query.max_text) for event in events[: query.limit]],
            has_after=len(events) > query.limit,
        )

    async def status(self, tenant: str) -> EvolutionStatus:
        """The agent's versions, and whether campaigns may run. Raises: InvalidInput."""
        self._require_tenant(tenant)
        ledger = await campaign_log.read_ledger(self.log, self.agent)
        return campaign_views.status_view(self.agent, ledger)

    async def start(
        self,
        tenant: str,
        *,
        sender: Sender | None = None,
        trigger: str = "manual",
        key: str | None = None,
    ) -> CampaignView:
        """Start a campaign, once for each key.

        Raises: InvalidInput: campaigns are paused, or the folder has no valid `evolve.yaml`.
        """
        self._require_tenant(tenant)
        name = None if key is None else ids.stable_id("camp", tenant, key)
        async with self.open_campaigns(sender) as campaigns:
            campaign_id = await campaigns.start(trigger=trigger, campaign_id=name)
        await self.put(Job(task=TASK, key=campaign_id, tenant=tenant))
        campaign = await campaign_log.read_campaign(self.log, campaign_id)
        return campaign_views.campaign_view(campaign)

    async def start_scheduled(self, tenant: str, key: str) -> str:
        """Returns the session of the campaign. Raises: InvalidInput."""
        return (await self.start(tenant, trigger="schedule", key=key)).session_id

    async def is_busy(self, tenant: str, session_id: str) -> bool:
        """Whether it is the session of a campaign that has not ended."""
        if tenant != self.tenant:
            return False
        return await campaign_log.is_running(self.log, session_id)

    async def resume(self, tenant: str, campaign_id: str) -> CampaignView:
        """Continue a campaign that was stopped by a pause. Raises: NotFound."""
        await self._require(tenant, campaign_id)
        await self.put(Job(task=TASK, key=campaign_id, tenant=tenant))
        campaign = await campaign_log.read_campaign(self.log, campaign_id)
        return campaign_views.campaign_view(campaign)

    async def promote(self, who: Principal, campaign_id: str, request: Promote) -> VersionView:
        """Raises: NotFound; InvalidInput: another change than the one that was seen, nothing to
        promote, or the folder has changed."""
        await self._require(who.tenant, campaign_id)
        async with self.open_campaigns(who.sender) as campaigns:
            version = await campaigns.promote(campaign_id, diff_hash=request.diff_hash)
        return await self._version(version.number)

    async def roll_back(self, who: Principal, request: RollBack) -> VersionView:
        """Raises: InvalidInput: there is no such version, or the folder has changed."""
        self._require_tenant(who.tenant)
        async with self.open_campaigns(who.sender) as campaigns:
            version = await campaigns.roll_back(request.version, request.reason)
        return await self._version(version.number)

    async def pause(self, who: Principal, request: Pause) -> EvolutionStatus:
        self._require_tenant(who.tenant)
        async with self.open_campaigns(who.sender) as campaigns:
            await campaigns.versions.pause(request.reason, is_paused=request.is_paused)
        return await self.status(who.tenant)

    async def run(self, job: Job) -> None:
        """Handle a job: run a campaign, or continue one whose worker died."""
        try:
            async with self.open_campaigns(None) as campaigns:
                try:
                    await campaigns.run(job.key)
                except (LeaseHeld, StoreFailed, campaign_log.CampaignsPaused):
                    raise
                except MainspringError as error:
                    await campaigns.fail(job.key, f"{type(error).__name__}: {error}")
        except campaign_log.CampaignsPaused:
            return  # a person resumes it

    async def _require(self, tenant: str, campaign_id: str) -> None:
        if tenant == self.tenant:
            known = await campaign_log.list_campaigns(self.log, self.agent)
            if any(item.campaign_id == campaign_id for item in known):
                return
        raise NotFound("campaign", campaign_id)

    async def _version(self, number: int) -> VersionView:
        ledger = await campaign_log.read_ledger(self.log, self.agent)
        views = campaign_views.version_views(ledger)
        return next(view for view in views if view.number == number)

    def _require_tenant(self, tenant: str) -> None:
        if tenant != self.tenant:
            raise InvalidInput(f"campaigns belong to the tenant {self.tenant}")
