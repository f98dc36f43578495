"""The versions of what campaigns improve, in one ledger in the log: recorded, used by a share of
the sessions or by all, and restored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    EvolutionPaused,
    EvolutionRolledBack,
    VersionActivated,
    VersionCreated,
)
from mainspring.core.sender import Sender
from mainspring.improve.evolution.campaigns.campaign_log import (
    Campaign,
    CampaignsPaused,
    VersionLedger,
    append_to_list,
    read_candidate,
    read_ledger,
)
from mainspring.improve.evolution.campaigns.campaign_views import approval_hash
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.tracks.folder_texts import copy_with, write_texts
from mainspring.log.session_log import SessionLog
from mainspring.runtime.agent_folder.canary import Canary, canary_place, write_canary
from mainspring.runtime.agent_folder.folder_versions import record_version


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentVersions:
    log: SessionLog
    folder: Path
    agent: str
    """The name in the log."""
    sender: Sender
    clock: Clock
    place: Path
    """The folder with the copies of canaries."""

    async def ready(self) -> VersionLedger:
        """Raises: CampaignsPaused."""
        ledger = await read_ledger(self.log, self.agent)
        if ledger.paused is not None:
            raise CampaignsPaused(
                f"campaigns on this agent are paused: {ledger.paused.reason or 'no reason given'};"
                " `mainspring evolve pause --off` allows them again"
            )
        return ledger

    async def record_current(self, ledger: VersionLedger, base: Candidate) -> None:
        """Record what the folder has now, if it is not the version in use."""
        active = ledger.active
        if active is not None and active.hash == base.hash:
            return
        version = VersionCreated(
            number=_next_number(ledger),
            hash=base.hash,
            parent=None if active is None else active.hash,
            trigger="edited by hand" if active is not None else "first",
            author=self.sender.id,
        )
        await self._append(version, candidates=(base,))
        await self._activate(version, "the folder's content", folder=self.folder)

    async def promote(
        self, campaign: Campaign, *, author: str, diff_hash: str | None, share: float
    ) -> VersionCreated:
        """Use the version that a campaign has promoted: with a `share` below 1 for that share of
        the new sessions, else for all. Repeating it after a crash changes nothing.

        Raises: InvalidInput: there is none, the folder or the version in use has changed since, or
            `diff_hash`, what the approver was shown, is the hash of another change.
        """
        if not campaign.promotions:
            raise InvalidInput(f"campaign {campaign.id} has promoted nothing: {campaign.status}")
        promoted = campaign.promotions[-1]
        if diff_hash is not None and diff_hash != approval_hash(promoted):
            raise InvalidInput("the change is not the one that was approved")
        ledger = await self.ready()
        active = ledger.active
        if active is not None and active.hash not in (campaign.created.base, promoted.candidate):
            raise InvalidInput(
                f"version {active.number} was activated after campaign {campaign.id} began; what"
                " the campaign has proved is about an earlier version: run a new one"
            )
        version = await self._promoted_version(ledger, campaign, author)
        candidate = await read_candidate(self.log, promoted.candidate)
        base = await read_candidate(self.log, campaign.created.base)
        reason = promoted.gate.reason
        if share < 1:
            await self._start_canary(ledger, version, candidate, base, share=share, reason=reason)
            return version
        await to_thread.run_sync(write_texts, self.folder, candidate, base)
        if active is None or active.number != version.number:
            await self._activate(version, reason, folder=self.folder)
        await self._end_canary()
        return version

    async def _promoted_version(
        self, ledger: VersionLedger, campaign: Campaign, author: str
    ) -> VersionCreated:
        promoted = campaign.promotions[-1]
        version = ledger.with_hash(promoted.candidate)
        if version is not None and version.campaign_id == campaign.id:
            return version
        gate = promoted.gate
        version = VersionCreated(
            number=_next_number(ledger),
            hash=promoted.candidate,
            parent=campaign.created.base,
            trigger=campaign.created.trigger,
            author=author,
            scores={"gain": gate.difference, "gain_low": gate.low, "gain_high": gate.high},
            campaign_id=campaign.id,
        )
        candidate = await read_candidate(self.log, promoted.candidate)
        await self._append(version, candidates=(candidate,))
        return version

    async def _start_canary(
        self,
        ledger: VersionLedger,
        version: VersionCreated,
        candidate: Candidate,
        base: Candidate,
        *,
        share: float,
        reason: str,
    ) -> None:
        digest = version.hash.removeprefix("sha256:")
        place = canary_place(self.place, digest)
        copy = await to_thread.run_sync(copy_with, self.folder, candidate, base, place)
        canary = ledger.canary
        if canary is None or (canary.number, canary.share) != (version.number, share):
            await self._activate(version, reason, folder=copy, share=share)
        pointer = Canary(hash=digest, share=share)
        await to_thread.run_sync(write_canary, self.place, self.folder, pointer)

    async def _end_canary(self) -> None:
        await to_thread.run_sync(write_canary, self.place, self.folder, None)

    async def roll_back(self, number: int | None, reason: str) -> VersionCreated:
        """Restore a version. Without a number a canary ends or, if there is none, the version
        before the one in use is restored.

        Raises: InvalidInput: there is no such version, or the folder has changed since.
        """
        ledger = await read_ledger(self.log, self.agent)
        active, canary = ledger.active, ledger.canary
        if active is None:
            raise InvalidInput("there is no version to roll back")
        if number is None:
            number = _version_before(ledger, active) if canary is None else active.number
        target, left = ledger.version(number), active if canary is None else canary
        current = await read_candidate(self.log, active.hash)
        candidate = await read_candidate(self.log, target.hash)
        await to_thread.run_sync(write_texts, self.folder, candidate, current)
        last = ledger.campaigns[-1].campaign_id if ledger.campaigns else ""
        await self._append(
            EvolutionRolledBack(
                campaign_id=ledger.version(left.number).campaign_id or last,
                number=target.number,
                candidate=left.hash,
                reason=reason,
                author=self.sender.id,
            )
        )
        await self._activate(target, reason, folder=self.folder)
        await self._end_canary()
        return target

    async def pause(self, reason: str, *, is_paused: bool) -> None:
        """Stop or allow all campaigns of this agent; a running one stops before its next call."""
        await self._append(
            EvolutionPaused(is_paused=is_paused, reason=reason, author=self.sender.id)
        )

    async def _activate(
        self, version: VersionCreated, reason: str, *, folder: Path, share: float = 1.0
    ) -> None:
        folder_version = await to_thread.run_sync(record_version, folder, self.clock)
        await self._append(
            VersionActivated(
                number=version.number,
                hash=version.hash,
                share=share,
                reason=reason,
                author=self.sender.id,
                agent_version=folder_version.label,
            )
        )

    async def _append(
        self,
        payload: VersionCreated | VersionActivated | EvolutionRolledBack | EvolutionPaused,
        candidates: Sequence[Candidate] = (),
    ) -> None:
        await append_to_list(
            self.log, self.agent, [payload], sender=self.sender, candidates=candidates
        )


def _next_number(ledger: VersionLedger) -> int:
    return 1 + max((version.number for version in ledger.versions), default=0)


def _version_before(ledger: VersionLedger, active: VersionActivated) -> int:
    earlier = [
        item for item in ledger.activations if item.number != active.number and item.share >= 1
    ]
    if not earlier:
        raise InvalidInput(f"there is no version before {active.number}")
    return earlier[-1].number
