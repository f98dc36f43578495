"""Watches the version in use by its real sessions: an alarm when they get worse, a paired re-run of
it and of the last good version, and a rollback if the version is to blame. What people have written
by hand is never rolled back, only reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from anyio import to_thread
from msgspec import Struct

from mainspring.core.clock import from_micros
from mainspring.core.envelope import Event, event_types
from mainspring.core.errors import SessionNotFound
from mainspring.core.events import (
    EvalCaseEnded,
    FeedbackGiven,
    OutcomeEvaluationEnded,
    SessionCreated,
    VersionActivated,
)
from mainspring.core.sender import OriginType
from mainspring.improve.evals.production import LISTED_AS
from mainspring.improve.evals.runs.run_log import existing_runs
from mainspring.improve.evolution.campaigns.campaign_log import (
    Campaign,
    VersionLedger,
    read_campaign,
    read_ledger,
)
from mainspring.improve.evolution.drift import DRIFT, DriftAlarm
from mainspring.improve.evolution.folder_campaigns import FolderCampaigns
from mainspring.improve.evolution.tracks.learning import remembers
from mainspring.log.session_log import SessionLog
from mainspring.log.store import all_sessions
from mainspring.runtime.agent_folder.manifest import agent_name

_DAYS = 30
"""Days with grades that are read."""
_MIN_HEALTHY = 20
"""Sessions that say how well the agent did before; with fewer, the first ones of the version do."""
_MAX_SESSIONS = 5_000  # the newest ones, among which those of a version are looked for
_LAB: frozenset[OriginType] = frozenset(("eval", "grader", "dream", "campaign"))
_TYPES = event_types(SessionCreated, FeedbackGiven, OutcomeEvaluationEnded)
WatchStatus: TypeAlias = Literal["too few sessions", "healthy", "alarm", "kept", "rolled back"]


class WatchReport(Struct, frozen=True, kw_only=True):
    status: WatchStatus
    version: int | None
    sessions: int
    """Real sessions of the version with an outcome."""
    pass_rate: float | None
    expected: float | None
    reason: str
    campaign_id: str | None = None
    """The paired re-run, or the campaign that the regression has opened."""


class SessionOutcome(Struct, frozen=True, kw_only=True):
    """What a real session has shown."""

    session_id: str
    time: datetime
    agent_version: str
    is_passed: bool
    broken: tuple[str, ...] = ()
    """Graders that it failed."""


@dataclass(frozen=True, slots=True)
class VersionWatch:
    campaigns: FolderCampaigns

    async def check(self) -> WatchReport:
        """One look. Repeat it as often as you like: sessions are counted once since the last
        paired re-run.

        Raises: InvalidInput: campaigns are paused, or the folder has changed.
        """
        campaigns = self.campaigns
        ledger = await read_ledger(campaigns.log, campaigns.agent)
        active = ledger.active
        if active is None:
            return _report("too few sessions", None, [], None, "no version is recorded yet")
        name = await to_thread.run_sync(agent_name, campaigns.folder)
        outcomes = await read_outcomes(campaigns.log, name, campaigns.suite_name)
        own = [item for item in outcomes if item.agent_version == active.agent_version]
        before = [item for item in outcomes if item.agent_version != active.agent_version]
        hard = [item for item in own if set(item.broken) & set(campaigns.settings.hard)]
        since = await self._last_rerun(ledger)
        recent = [item for item in own if since is None or item.time > since]
        if hard and hard[-1] in recent:
            graders = ", ".join(sorted(set(hard[-1].broken) & set(campaigns.settings.hard)))
            reason = f"session {hard[-1].session_id} violates a hard constraint: {graders}"
            return await self._roll_back(ledger, active, own, None, reason)
        if len(before) < _MIN_HEALTHY:
            before, recent = own[:_MIN_HEALTHY], recent[max(0, _MIN_HEALTHY - len(own)) :]
        if len(before) < _MIN_HEALTHY:
            reason = f"{len(before)} sessions with an outcome; {_MIN_HEALTHY} are needed"
            return _report("too few sessions", active, own, None, reason)
        expected = sum(item.is_passed for item in before) / len(before)
        alarm = DriftAlarm(expected)
        if not any([alarm.update(item.is_passed) for item in recent]):
            return _report("healthy", active, own, expected, "no alarm")
        rate = sum(item.is_passed for item in recent) / len(recent)
        reason = f"{rate:.0%} of {len(recent)} sessions pass, {expected:.0%} before"
        return await self._rerun(ledger, active, own, expected, reason)

    async def _last_rerun(self, ledger: VersionLedger) -> datetime | None:
        reruns = [item for item in ledger.campaigns if item.trigger == DRIFT]
        if not reruns:
            return None
        return (await read_campaign(self.campaigns.log, reruns[-1].campaign_id)).time

    async def _rerun(
        self,
        ledger: VersionLedger,
        active: VersionActivated,
        own: list[SessionOutcome],
        expected: float,
        reason: str,
    ) -> WatchReport:
        campaigns, good = self.campaigns, last_good(ledger, active)
        if good is None:
            return _report("alarm", active, own, expected, f"{reason}; there is no earlier version")
        if ledger.version(active.number).campaign_id is None:
            by_hand = f"{reason}; version {active.number} was written by hand, and stays"
            return _report("alarm", active, own, expected, by_hand)
        candidate = await campaigns.candidate(good)
        campaign_id = await campaigns.start(trigger=DRIFT, proposal=candidate)
        campaign = await campaigns.run(campaign_id)
        if campaign.status != "promoted":
            kept = f"{reason}, but version {good} does no better now: {_ending(campaign)}"
            return _report("kept", active, own, expected, kept, campaign_id)
        reason = f"{reason}; version {good} does better now: {_ending(campaign)}"
        return await self._roll_back(ledger, active, own, expected, reason, campaign_id)

    async def _roll_back(
        self,
        ledger: VersionLedger,
        active: VersionActivated,
        own: list[SessionOutcome],
        expected: float | None,
        reason: str,
        campaign_id: str | None = None,
    ) -> WatchReport:
        good = last_good(ledger, active)
        if good is None or ledger.version(active.number).campaign_id is None:
            return _report("alarm", active, own, expected, f"{reason}; nothing was rolled back")
        await self.campaigns.roll_back(good, reason)
        if self.campaigns.settings.regressions:
            campaign_id = await self.campaigns.start(trigger="auto_regression")
            await self.campaigns.run(campaign_id)
        return _report("rolled back", active, own, expected, reason, campaign_id)


def last_good(ledger: VersionLedger, active: VersionActivated) -> int | None:
    """The version that was in use before this one, and was not rolled back itself."""
    bad = {item.candidate for item in ledger.rollbacks}
    earlier = [
        item.number
        for item in ledger.activations
        if item.share >= 1 and item.number != active.number and item.hash not in bad
    ]
    return earlier[-1] if earlier else None


async def read_outcomes(log: SessionLog, agent_name: str, suite: str) -> list[SessionOutcome]:
    """The real sessions of an agent that have an outcome, oldest first: a person's rating, else the
    grade of the suite, else the verdict on the outcome that was asked for. Sessions of evals,
    graders, dreams and campaigns do not count."""
    grades = await _grades(log, agent_name, suite)
    found: list[SessionOutcome] = []
    count = 0
    async for row in all_sessions(log.store):
        count += 1
        if count > _MAX_SESSIONS:
            break
        try:
            events = await log.read(row.id, types=_TYPES)
        except SessionNotFound:
            continue
        outcome = _outcome(row.id, from_micros(row.created), events, agent_name, grades)
        if outcome is not None:
            found.append(outcome)
    return found[::-1]


async def _grades(log: SessionLog, agent_name: str, suite: str) -> dict[str, EvalCaseEnded]:
    runs = await existing_runs(log, agent_name, suite + LISTED_AS, newest=_DAYS)
    results = [item for run in runs for item in run.results.values()]
    return {item.session_id: item for item in results if item.outcome != "error"}


def _outcome(
    session_id: str,
    time: datetime,
    events: Iterable[Event],
    agent_name: str,
    grades: dict[str, EvalCaseEnded],
) -> SessionOutcome | None:
    payloads = [event.payload for event in events]
    created = next((item for item in payloads if isinstance(item, SessionCreated)), None)
    if created is None or created.agent_name != agent_name or created.agent_version is None:
        return None
    is_lab = created.origin is not None and created.origin.type in _LAB
    if is_lab or not remembers(created):
        return None
    grade = grades.get(session_id)
    verdicts = [*_verdicts(payloads, grade)]
    if not verdicts:
        return None
    broken = () if grade is None else tuple(item.grader for item in grade.grades if not item.passed)
    return SessionOutcome(
        session_id=session_id,
        time=time,
        agent_version=created.agent_version,
        is_passed=verdicts[0],
        broken=broken,
    )


def _verdicts(payloads: Iterable[object], grade: EvalCaseEnded | None) -> Iterator[bool]:
    """The most trusted first."""
    items = list(payloads)
    for item in reversed(items):
        if isinstance(item, FeedbackGiven) and item.subject.type in ("session", "message"):
            yield item.rating == "good"
    if grade is not None:
        yield grade.outcome == "passed"
    for item in reversed(items):
        if isinstance(item, OutcomeEvaluationEnded) and item.result != "interrupted":
            yield item.result == "satisfied"


def _ending(campaign: Campaign) -> str:
    return "" if campaign.ended is None else campaign.ended.reason


def _report(
    status: WatchStatus,
    active: VersionActivated | None,
    own: list[SessionOutcome],
    expected: float | None,
    reason: str,
    campaign_id: str | None = None,
) -> WatchReport:
    return WatchReport(
        status=status,
        version=None if active is None else active.number,
        sessions=len(own),
        pass_rate=sum(item.is_passed for item in own) / len(own) if own else None,
        expected=expected,
        reason=reason,
        campaign_id=campaign_id,
    )
