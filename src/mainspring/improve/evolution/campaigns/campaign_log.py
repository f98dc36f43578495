"""Campaigns in the log: each is a session whose events record what was run, proposed and decided.
Another session for each agent lists its campaigns, and is the ledger of its versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, TypeAlias

import anyio

from mainspring.core import ids
from mainspring.core.envelope import Event, event_types
from mainspring.core.errors import InvalidInput, LeaseHeld, SessionExists, SessionNotFound
from mainspring.core.events import (
    EvolutionCreated,
    EvolutionEnded,
    EvolutionPaused,
    EvolutionPromoted,
    EvolutionProposed,
    EvolutionRecommended,
    EvolutionRefused,
    EvolutionRolledBack,
    EvolutionScreened,
    EvolutionSignal,
    EvolutionTested,
    KnownPayload,
    SessionCreated,
    VersionActivated,
    VersionCreated,
)
from mainspring.core.sender import Origin, Sender
from mainspring.improve.evolution.candidate import Candidate, decode, encode
from mainspring.improve.listed_sessions import create_listed, read_list
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer

CampaignStatus: TypeAlias = Literal[
    "running", "promoted", "refused", "undecided", "nothing", "unavailable", "failed"
]


class CampaignsPaused(InvalidInput):
    """A person has stopped all campaigns on the agent."""


_TRIES = 300
"""Attempts, 0.05 s apart, to write into a list that another process writes into."""
_LEDGER = event_types(
    EvolutionCreated, EvolutionPaused, EvolutionRolledBack, VersionCreated, VersionActivated
)


@dataclass(slots=True)
class Campaign:
    """A campaign, as a fold of its log."""

    created: EvolutionCreated
    time: datetime
    signal: EvolutionSignal | None = None
    recommended: EvolutionRecommended | None = None
    steps: list[EvolutionScreened] = field(default_factory=list[EvolutionScreened])
    refusals: list[EvolutionRefused] = field(default_factory=list[EvolutionRefused])
    promotions: list[EvolutionPromoted] = field(default_factory=list[EvolutionPromoted])
    ended: EvolutionEnded | None = None
    trials: int = 0
    proposals: int = 0
    cost_usd: Decimal = Decimal(0)

    @property
    def id(self) -> str:
        return self.created.campaign_id

    @property
    def status(self) -> CampaignStatus:
        return "running" if self.ended is None else self.ended.status

    def apply(self, event: Event) -> None:
        match event.payload:
            case EvolutionScreened() as step:
                self.steps.append(step)
            case EvolutionRefused() as refused:
                self.refusals.append(refused)
            case EvolutionPromoted() as promoted:
                self.promotions.append(promoted)
            case EvolutionSignal() as signal:
                self.signal = signal
            case EvolutionRecommended() as recommended:
                self.recommended = recommended
            case EvolutionEnded() as ended:
                self.ended = ended
            case payload:
                self._count(payload)

    def _count(self, payload: object) -> None:
        match payload:
            case EvolutionTested(results=results):
                self.trials += len(results)
                self.cost_usd += sum((Decimal(item.cost_usd) for item in results), Decimal(0))
            case EvolutionProposed(cost_usd=cost_usd):
                self.proposals += 1
                self.cost_usd += Decimal(cost_usd)
            case _:
                pass


def fold_campaign(log: Iterable[Event]) -> Campaign | None:
    """`None` if it is not the log of a campaign."""
    campaign: Campaign | None = None
    for event in log:
        if isinstance(event.payload, EvolutionCreated):
            campaign = campaign or Campaign(event.payload, event.time)
        elif campaign is not None:
            campaign.apply(event)
    return campaign


@dataclass(slots=True)
class VersionLedger:
    """The versions of an agent's texts, oldest first, and which of them is in use."""

    versions: list[VersionCreated] = field(default_factory=list[VersionCreated])
    times: list[datetime] = field(default_factory=list[datetime])
    activations: list[VersionActivated] = field(default_factory=list[VersionActivated])
    campaigns: list[EvolutionCreated] = field(default_factory=list[EvolutionCreated])
    rollbacks: list[EvolutionRolledBack] = field(default_factory=list[EvolutionRolledBack])
    paused: EvolutionPaused | None = None

    def apply(self, event: Event) -> None:
        match event.payload:
            case VersionCreated() as version:
                self.versions.append(version)
                self.times.append(event.time)
            case VersionActivated() as activated:
                self.activations.append(activated)
            case EvolutionCreated() as created:
                self.campaigns.append(created)
            case EvolutionRolledBack() as rolled_back:
                self.rollbacks.append(rolled_back)
            case EvolutionPaused() as paused:
                self.paused = paused if paused.is_paused else None
            case _:
                pass

    @property
    def active(self) -> VersionActivated | None:
        """The version that all sessions use, but for those of a canary."""
        full = [item for item in self.activations if item.share >= 1]
        return full[-1] if full else None

    @property
    def canary(self) -> VersionActivated | None:
        last = self.activations[-1] if self.activations else None
        return last if last is not None and last.share < 1 else None

    def version(self, number: int) -> VersionCreated:
        """Raises: InvalidInput: there is no such version."""
        for version in self.versions:
            if version.number == number:
                return version
        numbers = ", ".join(str(version.number) for version in self.versions) or "none yet"
        raise InvalidInput(f"there is no version {number}; there are {numbers}")

    def with_hash(self, digest: str) -> VersionCreated | None:
        return next((item for item in reversed(self.versions) if item.hash == digest), None)


def agent_of(folder: Path) -> str:
    """The name of a folder's agent in the log."""
    return f"folder:{folder.resolve()}"


def campaign_session(campaign_id: str) -> str:
    """The session that is the campaign."""
    return ids.stable_id(ids.SESSION, "campaign", campaign_id)


def list_session(agent: str) -> str:
    """The session that lists the campaigns and versions of an agent."""
    return ids.stable_id(ids.SESSION, "campaigns", agent)


async def read_campaign(log: SessionLog, campaign_id: str) -> Campaign:
    """Raises: InvalidInput: there is no such campaign."""
    with suppress(SessionNotFound):
        campaign = fold_campaign(await log.read(campaign_session(campaign_id)))
        if campaign is not None:
            return campaign
    raise InvalidInput(f"there is no campaign {campaign_id}")


async def is_running(log: SessionLog, session_id: str) -> bool:
    """Whether a session is a campaign that has not ended."""
    try:
        campaign = fold_campaign(await log.read(session_id))
    except SessionNotFound:
        return False
    return campaign is not None and campaign.ended is None


async def list_campaigns(log: SessionLog, agent: str) -> list[EvolutionCreated]:
    """The campaigns of an agent, oldest first."""
    return await read_list(log, list_session(agent), EvolutionCreated)


async def sealed_looks(log: SessionLog, agent: str, suite_hash: str) -> int:
    """How often the gate has looked at the sealed cases of a suite. Each look wears them out."""
    looks = 0
    for created in await list_campaigns(log, agent):
        if created.suite_hash == suite_hash:
            campaign = await read_campaign(log, created.campaign_id)
            gates = [item.gate for item in (*campaign.refusals, *campaign.promotions)]
            looks += sum(gate.looks for gate in gates if gate is not None)
    return looks


async def read_ledger(log: SessionLog, agent: str) -> VersionLedger:
    ledger = VersionLedger()
    with suppress(SessionNotFound):
        for event in await log.read(list_session(agent), types=_LEDGER):
            ledger.apply(event)
    return ledger


async def create_campaign(log: SessionLog, created: EvolutionCreated, *, sender: Sender) -> None:
    """Write a campaign's first event, and list it. Repeating it after a crash changes nothing."""
    origin = Origin(type="campaign", id=created.campaign_id)
    titles = {
        campaign_session(created.campaign_id): f"campaign on {created.suite}",
        list_session(created.agent): f"campaigns of {created.agent}",
    }
    sessions = {
        session_id: SessionCreated(title=title, origin=origin)
        for session_id, title in titles.items()
    }
    await create_listed(log, created, sessions, key=lambda item: item.campaign_id, sender=sender)


async def append_to_list(
    log: SessionLog,
    agent: str,
    payloads: Sequence[KnownPayload],
    *,
    sender: Sender,
    candidates: Sequence[Candidate] = (),
) -> None:
    """Write into the list of an agent's campaigns, with the texts that the events refer to.

    Raises: LeaseHeld: another process does not release the list.
    """
    session_id = list_session(agent)
    session = SessionCreated(title=f"campaigns of {agent}", origin=Origin(type="campaign"))
    with suppress(SessionExists):
        await log.create(session, session_id=session_id, sender=sender)
    for attempt in range(_TRIES + 1):
        try:
            async with hold_session(log, session_id) as writer:
                for candidate in candidates:
                    await store_candidate(writer, candidate)
                await writer.append(*payloads)
            return
        except LeaseHeld:
            if attempt == _TRIES:
                raise
        await anyio.sleep(0.05)


async def store_candidate(writer: Writer, candidate: Candidate) -> str:
    """Store a candidate's texts and return the hash of the blob.

    Raises: InvalidInput: they contain a secret, which the log would not keep.
    """
    blob = await writer.put_blob(encode(candidate), media_type="application/json")
    if blob.hash != candidate.hash:
        raise InvalidInput("the texts of the agent contain a secret; remove it first")
    return blob.hash


async def read_candidate(log: SessionLog, digest: str) -> Candidate:
    return decode(await log.blob(digest))
