"""Campaigns on the agent of a folder: plans, runs and resumes them, and makes a version that has
passed the gate the agent's own, or an earlier one again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
from anyio import to_thread
from msgspec.structs import replace

from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    EvolutionCreated,
    EvolutionEnded,
    EvolutionPaused,
    EvolutionRolledBack,
    VersionActivated,
    VersionCreated,
)
from mainspring.core.sender import Sender
from mainspring.improve.evals.case_selection import Selection
from mainspring.improve.evals.run_log import MAX_EARLIER_RUNS, existing_runs
from mainspring.improve.evals.runner import RunSettings
from mainspring.improve.evals.suite import Case, SuiteFile
from mainspring.improve.evolution.campaign_log import (
    Campaign,
    CampaignsPaused,
    Ledger,
    agent_of,
    append_to_list,
    campaign_session,
    create_campaign,
    read_campaign,
    read_candidate,
    read_ledger,
    store_candidate,
)
from mainspring.improve.evolution.campaign_views import approval_hash
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.diagnosis import Situation
from mainspring.improve.evolution.drift import CONFIRM, DRIFT
from mainspring.improve.evolution.evolve_settings import PRESETS, EvolveSettings
from mainspring.improve.evolution.folder_texts import read_texts, track_of, write_texts
from mainspring.improve.evolution.folder_trials import FolderTrials, OpenRunner, OpenRunners
from mainspring.improve.evolution.improver import Improver, Plan
from mainspring.improve.evolution.journal import Journal
from mainspring.improve.evolution.model_proposer import AskImprover
from mainspring.improve.evolution.ports import RunTrials
from mainspring.improve.evolution.program import ProgramFile
from mainspring.improve.evolution.program_history import ProgramHistory
from mainspring.improve.evolution.recorded_ports import RecordedPorts
from mainspring.improve.evolution.sealed_gate import GatePolicy, stream_policy
from mainspring.improve.evolution.search import SearchPolicy
from mainspring.improve.evolution.static_checks import StaticChecks, case_quotes
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.runtime.agent_folder.folder_versions import record_version

_SEALED_SHARE = 0.4
"""The share of the cases that are sealed if the suite has no split `holdout`."""
_GUESSED_SECONDS = 20.0
"""The duration of a trial of which there is no earlier one."""
_SMALL = 10
"""Cases; below it every change is tested on all cases that pass (a metaprompt, not a search)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCampaigns:
    log: SessionLog
    folder: Path
    settings: EvolveSettings
    suite_file: SuiteFile
    open_runner: OpenRunner
    ask: AskImprover
    sender: Sender
    clock: Clock
    place: Path
    author: str = ""
    """The name of the improver."""
    report: Callable[[str], None] = lambda _: None
    program: ProgramFile | None = None
    """The program that is improved, instead of the agent."""

    @property
    def agent(self) -> str:
        """The name of what is improved, in the log."""
        name = agent_of(self.folder)
        return name if self.program is None else f"{name}#{self.program.file}"

    def read(self) -> Candidate:
        """The current version. Blocks. Raises: InvalidInput."""
        if self.program is not None:
            return self.program.read(self.folder)
        return read_texts(self.folder, harness_files=self.settings.harness)

    @property
    def suite_name(self) -> str:
        return self.suite_file.suite.name

    async def candidate(self, number: int) -> Candidate:
        """The texts of a version. Raises: InvalidInput: there is no such version."""
        ledger = await read_ledger(self.log, self.agent)
        return await read_candidate(self.log, ledger.version(number).hash)

    def read_change(self, folder: Path) -> Candidate:
        """The current version with the texts of another folder, which has only those that change.

        Raises: InvalidInput.
        """
        current = self.read()
        if self.program is not None:
            return self.program.read(folder)
        changed = read_texts(folder, harness_files=self.settings.harness)
        if not changed.texts:
            raise InvalidInput(f"{folder} has no file that a campaign may change")
        return Candidate({**current.texts, **changed.texts})

    async def start(
        self,
        *,
        trigger: str = "manual",
        campaign_id: str | None = None,
        proposal: Candidate | None = None,
    ) -> str:
        """Record a new campaign on the current version, and return its id. `campaign_id`: chosen by
        a caller that must not start it twice. `proposal`: a change that somebody else has made, for
        the gate to decide about; nothing is searched then.

        Raises: InvalidInput: campaigns are paused, another one runs, or the plan is impossible.
        """
        ledger = await self._ready()
        base = await to_thread.run_sync(self.read)
        await self._record_current(ledger, base)
        campaign_id = campaign_id or ids.new_id("camp")
        if any(item.campaign_id == campaign_id for item in ledger.campaigns):
            return campaign_id
        plan = self.plan(campaign_id, base)
        if proposal is not None:
            plan = _plan_of_proposal(plan, len(ledger.campaigns), trigger)
        encoded = msgspec.json.encode(plan)
        created = EvolutionCreated(
            campaign_id=campaign_id,
            agent=self.agent,
            suite=self.suite_file.suite.name,
            suite_hash=self.suite_file.hash,
            plan=f"sha256:{hashlib.sha256(encoded).hexdigest()}",
            base=base.hash,
            trigger=trigger,
            proposal=None if proposal is None else proposal.hash,
            preset=self.settings.preset,
        )
        await create_campaign(self.log, created, sender=self.sender)
        async with hold_session(self.log, campaign_session(campaign_id)) as writer:
            await writer.put_blob(encoded, media_type="application/json")
            await store_candidate(writer, base)
            if proposal is not None:
                await store_candidate(writer, proposal)
        return campaign_id

    def plan(self, campaign_id: str, base: Candidate) -> Plan:
        """Raises: InvalidInput: there are no cases for the search or for the gate."""
        settings, suite = self.settings, self.suite_file.suite
        develop, sealed = split_cases(suite.cases)
        if not develop or not sealed:
            raise InvalidInput(
                f"suite {suite.name} has {len(develop)} cases to develop with and {len(sealed)}"
                " sealed ones; both are needed"
            )
        preset = PRESETS[settings.preset]
        is_small = len(develop) < _SMALL
        return Plan(
            campaign_id=campaign_id,
            develop=tuple(develop),
            sealed=tuple(sealed),
            seed=settings.seed,
            situation=Situation(
                has_corpus=settings.corpus is not None
                or any(track_of(path) == "knowledge" for path in base.texts),
                tracks=(*settings.tracks, "fine_tune"),
            ),
            search=SearchPolicy(
                guards=len(develop) if is_small else 6,
                samples=1,
                most_refusals=settings.most_refusals,
            ),
            gate=GatePolicy(alpha=preset.alpha, trials=settings.trials),
            must_pass=tuple(case.id for case in suite.cases if case.must_pass),
            tags={case.id: case.tags for case in suite.cases if case.tags},
        )

    async def run(self, campaign_id: str) -> Campaign:
        """Run a campaign, or continue it.

        Raises: LeaseHeld: another process runs it. InvalidInput: campaigns are paused, or the
            suite has changed since it began.
        """
        campaign = await read_campaign(self.log, campaign_id)
        if campaign.created.suite_hash != self.suite_file.hash:
            raise InvalidInput(f"the suite has changed since campaign {campaign_id} began")
        async with hold_session(self.log, campaign_session(campaign_id)) as writer:
            journal = await Journal.open(self.log, writer)
            if campaign.ended is None:
                await self._run(campaign, journal)
        campaign = await read_campaign(self.log, campaign_id)
        is_applied = self.settings.policy == "apply" and campaign.created.trigger != DRIFT
        if campaign.promotions and is_applied:
            await self.promote(campaign_id)
        return campaign

    async def fail(self, campaign_id: str, reason: str) -> None:
        """End a campaign that cannot continue. Raises: LeaseHeld: another process runs it."""
        async with hold_session(self.log, campaign_session(campaign_id)) as writer:
            if (await read_campaign(self.log, campaign_id)).ended is None:
                ended = EvolutionEnded(campaign_id=campaign_id, status="failed", reason=reason)
                await writer.append(ended)

    async def _run(self, campaign: Campaign, journal: Journal) -> None:
        plan = msgspec.json.decode(await self.log.blob(campaign.created.plan), type=Plan)
        base = await read_candidate(self.log, campaign.created.base)
        place = self.place / plan.campaign_id
        async with OpenRunners(self.open_runner) as runners:
            runs: RunTrials = FolderTrials(
                log=self.log,
                folder=self.folder,
                base=base,
                suite_file=self.suite_file,
                runners=runners,
                place=place,
                name=f"campaign {plan.campaign_id}",
            )
            history = None
            if self.program is not None:
                runs = self.program.trials(self.folder, base)
                history = ProgramHistory(place)
                await history.begin(base)
            ports = RecordedPorts(
                log=self.log,
                agent=self.agent,
                settings=self.settings,
                suite=self.suite_file.suite,
                runs=runs,
                ask=self.ask,
                author=self.author,
                report=self.report,
                journal=journal,
                plan=plan,
                base=base,
                clock=self.clock,
                started=campaign.time,
                history=history,
                task="" if self.program is None else self.program.program.text,
            )
            await self._improve(ports, campaign.created)

    async def _improve(self, ports: RecordedPorts, created: EvolutionCreated) -> None:
        plan = ports.plan
        if (refusal := await ports.control()) is not None:
            ended = EvolutionEnded(campaign_id=plan.campaign_id, status="failed", reason=refusal)
            await ports.journal.record(ended)
            return
        improver = Improver(
            plan=plan,
            trials=partial(ports.trials, "metric"),
            sealed=partial(ports.trials, "sealed"),
            propose=ports.propose,
            check=_no_check if created.trigger == DRIFT else self.checks(),
            meter=ports.meter,
            record=ports.record,
        )
        if created.proposal is None:
            await improver.run(ports.base)
        else:
            await improver.consider(ports.base, await read_candidate(self.log, created.proposal))

    def checks(self) -> StaticChecks:
        settings, cases = self.settings, self.suite_file.suite.cases
        return StaticChecks(
            preset=PRESETS[settings.preset],
            tracks=settings.tracks,
            pinned=("evolve.yaml", "program.md", "evals/*", *settings.pinned),
            protected=settings.protected,
            harness_files=settings.harness if self.program is None else (self.program.file,),
            quotes=case_quotes(cases),
            names=frozenset(case.id for case in cases),
        )

    async def estimate(self) -> Estimate:
        """The cost and duration of a trial, without running one."""
        async with self.open_runner(self.folder) as runner:
            plan = await runner.plan(self.suite_file, Selection(), RunSettings(fresh=True))
            count = len(plan.trials)
            runs = await existing_runs(
                self.log, runner.agent.name, self.suite_file.suite.name, newest=MAX_EARLIER_RUNS
            )
        seconds = [item.seconds for run in runs for item in run.results.values()]
        return Estimate(
            cost_usd=plan.estimate_usd / count,
            seconds=fmean(seconds) if seconds else _GUESSED_SECONDS,
            basis=plan.estimate_basis,
        )

    async def promote(
        self, campaign_id: str, *, diff_hash: str | None = None, share: float | None = None
    ) -> VersionCreated:
        """Make the version that a campaign has promoted the agent's. Repeating it after a crash
        changes nothing.

        Raises: InvalidInput: there is none, the folder has changed since, or `diff_hash`, what
            the approver was shown, is the hash of another change.
        """
        campaign = await read_campaign(self.log, campaign_id)
        if not campaign.promotions:
            raise InvalidInput(f"campaign {campaign_id} has promoted nothing: {campaign.status}")
        promoted = campaign.promotions[-1]
        if diff_hash is not None and diff_hash != approval_hash(promoted):
            raise InvalidInput("the change is not the one that was approved")
        ledger = await self._ready()
        active = ledger.active
        if active is not None and active.hash not in (campaign.created.base, promoted.candidate):
            raise InvalidInput(
                f"version {active.number} was activated after campaign {campaign_id} began; what"
                " the campaign has proved is about an earlier version: run a new one"
            )
        candidate = await read_candidate(self.log, promoted.candidate)
        base = await read_candidate(self.log, campaign.created.base)
        await to_thread.run_sync(write_texts, self.folder, candidate, base)
        version = ledger.with_hash(candidate.hash)
        if version is None or version.campaign_id != campaign_id:
            gate = promoted.gate
            version = VersionCreated(
                number=_next_number(ledger),
                hash=candidate.hash,
                parent=base.hash,
                trigger=campaign.created.trigger,
                author=self.author,
                scores={"gain": gate.difference, "gain_low": gate.low, "gain_high": gate.high},
                campaign_id=campaign_id,
            )
            await self._append(version, candidates=(candidate,))
        if active is None or active.number != version.number:
            share = self.settings.canary if share is None else share
            await self._activate(version, promoted.gate.reason, share=share)
        return version

    async def roll_back(self, number: int | None, reason: str) -> VersionCreated:
        """Restore a version; without a number, the one before the version in use.

        Raises: InvalidInput: there is no such version, or the folder has changed since.
        """
        ledger = await read_ledger(self.log, self.agent)
        active = ledger.active
        if active is None:
            raise InvalidInput("there is no version to roll back")
        target = ledger.version(_version_before(ledger, active) if number is None else number)
        current = await read_candidate(self.log, active.hash)
        candidate = await read_candidate(self.log, target.hash)
        await to_thread.run_sync(write_texts, self.folder, candidate, current)
        last = ledger.campaigns[-1].campaign_id if ledger.campaigns else ""
        await self._append(
            EvolutionRolledBack(
                campaign_id=ledger.version(active.number).campaign_id or last,
                number=target.number,
                candidate=active.hash,
                reason=reason,
                author=self.sender.id,
            )
        )
        await self._activate(target, reason, share=1.0)
        return target

    async def pause(self, reason: str, *, is_paused: bool) -> None:
        """Stop or allow all campaigns of this agent; a running one stops before its next call."""
        await self._append(
            EvolutionPaused(is_paused=is_paused, reason=reason, author=self.sender.id)
        )

    async def _ready(self) -> Ledger:
        ledger = await read_ledger(self.log, self.agent)
        if ledger.paused is not None:
            raise CampaignsPaused(
                f"campaigns on this agent are paused: {ledger.paused.reason or 'no reason given'};"
                " `mainspring evolve pause --off` allows them again"
            )
        return ledger

    async def _record_current(self, ledger: Ledger, base: Candidate) -> None:
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
        await self._activate(version, "the folder's content", share=1.0)

    async def _activate(self, version: VersionCreated, reason: str, *, share: float) -> None:
        folder_version = await to_thread.run_sync(record_version, self.folder, self.clock)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one trial costs."""

    cost_usd: Decimal
    seconds: float
    basis: str


def _plan_of_proposal(plan: Plan, number: int, trigger: str) -> Plan:
    """A stream of proposals is screened first, on other cases each time, so that neither a lucky
    proposal nor many of them wear the sealed cases out. A re-run after an alarm is not."""
    if trigger == DRIFT:
        return replace(plan, gate=CONFIRM, gates=1)
    sealed = list(plan.sealed)
    Random(f"{number} {plan.seed}").shuffle(sealed)
    return replace(plan, sealed=tuple(sealed), gate=stream_policy(plan.gate, len(sealed)), gates=1)


def split_cases(cases: Sequence[Case]) -> tuple[list[str], list[str]]:
    """The cases for the search, and the sealed ones. Without a split `holdout`, sealed cases are
    drawn by their ids, so that they stay the same."""
    sealed = [case.id for case in cases if case.split == "holdout"]
    if not sealed:
        names = sorted(case.id for case in cases)
        chosen = Random("sealed").sample(names, round(_SEALED_SHARE * len(names)))
        sealed = [case.id for case in cases if case.id in chosen]
    return [case.id for case in cases if case.id not in sealed], sealed


def _no_check(_: Candidate, __: Candidate) -> str | None:
    """An earlier version was checked before it was used."""
    return None


def _next_number(ledger: Ledger) -> int:
    return 1 + max((version.number for version in ledger.versions), default=0)


def _version_before(ledger: Ledger, active: VersionActivated) -> int:
    earlier = [item for item in ledger.activations if item.number != active.number]
    if not earlier:
        raise InvalidInput(f"there is no version before {active.number}")
    return earlier[-1].number
