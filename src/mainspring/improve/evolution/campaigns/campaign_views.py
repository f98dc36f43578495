"""Campaigns and versions as the command line and the API show them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from mainspring.core.events import (
    EvolutionDecision,
    EvolutionPromoted,
    EvolutionRecommended,
    EvolutionScreened,
    EvolutionSignalValue,
)
from mainspring.improve.evolution.campaigns.campaign_log import (
    Campaign,
    CampaignStatus,
    VersionLedger,
    campaign_session,
    read_candidate,
)
from mainspring.improve.evolution.candidate import candidate_diff, text_hash
from mainspring.log.session_log import SessionLog


class CampaignView(Struct, frozen=True, kw_only=True):
    id: str
    session_id: str
    """The session that has the campaign's events."""
    time: datetime
    status: CampaignStatus
    suite: str
    trigger: str
    preset: str
    track: str | None
    """The recommended track."""
    reason: str
    """How it ended, in one sentence."""
    score: float | None
    """The share of cases that passed at the start."""
    trials: int
    proposals: int
    refused: int
    promoted: int
    cost_usd: str


class DecisionView(Struct, frozen=True, kw_only=True):
    """What the gate decided about a candidate."""

    candidate: str
    calls: int
    gate: EvolutionDecision


class CampaignDetail(Struct, frozen=True, kw_only=True):
    campaign: CampaignView
    signals: tuple[EvolutionSignalValue, ...]
    recommended: EvolutionRecommended | None
    steps: tuple[EvolutionScreened, ...]
    """Each change that was tried: kept for the gate, or why it was refused."""
    decisions: tuple[DecisionView, ...]
    calls: dict[str, int]
    diff: str
    """What a promotion would change; empty if there is none."""
    diff_hash: str | None
    """What an approval of the promotion is bound to."""


class VersionView(Struct, frozen=True, kw_only=True):
    number: int
    time: datetime
    hash: str
    parent: str | None
    trigger: str
    author: str
    scores: dict[str, float]
    campaign_id: str | None
    is_active: bool


class EvolutionStatus(Struct, frozen=True, kw_only=True):
    """An agent's versions, and whether campaigns may run."""

    agent: str
    active: int | None
    canary: int | None
    canary_share: float | None
    is_paused: bool
    pause_reason: str
    versions: tuple[VersionView, ...]
    """Newest first."""


def campaign_view(campaign: Campaign) -> CampaignView:
    recommended, ended = campaign.recommended, campaign.ended
    return CampaignView(
        id=campaign.id,
        session_id=campaign_session(campaign.id),
        time=campaign.time,
        status=campaign.status,
        suite=campaign.created.suite,
        trigger=campaign.created.trigger,
        preset=campaign.created.preset,
        track=None if recommended is None else recommended.track,
        reason="" if ended is None else ended.reason,
        score=None if campaign.signal is None else campaign.signal.score,
        trials=campaign.trials,
        proposals=campaign.proposals,
        refused=len(campaign.refusals) + sum(not step.is_kept for step in campaign.steps),
        promoted=len(campaign.promotions),
        cost_usd=str(campaign.cost_usd) if ended is None else ended.cost_usd,
    )


async def campaign_detail(log: SessionLog, campaign: Campaign) -> CampaignDetail:
    refused = [
        DecisionView(candidate=item.candidate, calls=item.calls, gate=item.gate)
        for item in campaign.refusals
        if item.gate is not None
    ]
    promoted = [
        DecisionView(candidate=item.candidate, calls=item.calls, gate=item.gate)
        for item in campaign.promotions
    ]
    is_promoted = bool(campaign.promotions)
    return CampaignDetail(
        campaign=campaign_view(campaign),
        signals=() if campaign.signal is None else campaign.signal.signals,
        recommended=campaign.recommended,
        steps=tuple(campaign.steps),
        decisions=tuple(sorted([*refused, *promoted], key=lambda item: item.calls)),
        calls={} if campaign.ended is None else campaign.ended.calls,
        diff=await promotion_diff(log, campaign) if is_promoted else "",
        diff_hash=approval_hash(campaign.promotions[-1]) if is_promoted else None,
    )


async def promotion_diff(log: SessionLog, campaign: Campaign) -> str:
    """Everything that a promotion would change, over all decisions of the campaign."""
    base = await read_candidate(log, campaign.created.base)
    new = await read_candidate(log, campaign.promotions[-1].candidate)
    return candidate_diff(base, new)


def approval_hash(promoted: EvolutionPromoted) -> str:
    """What an approval of a promotion is bound to: the exact change."""
    return text_hash(f"{promoted.parent}\n{promoted.candidate}\n{promoted.diff}")


def status_view(agent: str, ledger: VersionLedger) -> EvolutionStatus:
    active, canary, paused = ledger.active, ledger.canary, ledger.paused
    return EvolutionStatus(
        agent=agent,
        active=None if active is None else active.number,
        canary=None if canary is None else canary.number,
        canary_share=None if canary is None else canary.share,
        is_paused=paused is not None,
        pause_reason="" if paused is None else paused.reason,
        versions=tuple(version_views(ledger)),
    )


def version_views(ledger: VersionLedger) -> list[VersionView]:
    """Newest first."""
    active = ledger.active
    return [
        VersionView(
            number=version.number,
            time=time,
            hash=version.hash,
            parent=version.parent,
            trigger=version.trigger,
            author=version.author,
            scores=version.scores,
            campaign_id=version.campaign_id,
            is_active=active is not None and active.number == version.number,
        )
        for version, time in reversed(list(zip(ledger.versions, ledger.times, strict=True)))
    ]
