"""Campaigns on the agent of a folder: plans, runs and resumes them, and makes a version that has
passed the gate the agent's own, or an earlier one again."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
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
    VersionCreated,
)
from mainspring.core.sender import Sender
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.run_log import MAX_EARLIER_RUNS, existing_runs
from mainspring.improve.evals.runs.runner import RunSettings
from mainspring.improve.evals.suite import Case, SuiteFile
from mainspring.improve.evolution.agent_versions import AgentVersions
from mainspring.improve.evolution.assets import ASSETS_FILE, Asset, list_assets, read_assets
from mainspring.improve.evolution.campaigns.campaign_log import (
    Campaign,
    agent_of,
    campaign_session,
    create_campaign,
    read_campaign,
    read_candidate,
    read_ledger,
    store_candidate,
)
from mainspring.improve.evolution.campaigns.journal import Journal
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.diagnosis import Situation
from mainspring.improve.evolution.drift import CONFIRM, DRIFT
from mainspring.improve.evolution.folder_trials import FolderTrials, OpenRunner, OpenRunners
from mainspring.improve.evolution.improver import CampaignPlan, Improver
from mainspring.improve.evolution.metric_trials import Metric, MetricTrials
from mainspring.improve.evolution.model_proposer import AskImprover
from mainspring.improve.evolution.ports import RunTrials
from mainspring.improve.evolution.recorded_ports import RecordedPorts
from mainspring.improve.evolution.sealed_gate import GatePolicy, stream_policy
from mainspring.improve.evolution.search import SearchPolicy
from mainspring.improve.evolution.tracks.evolve_settings import PRESETS, EvolveSettings
from mainspring.improve.evolution.tracks.folder_texts import read_texts, track_of
from mainspring.improve.evolution.tracks.learning import Learning
from mainspring.improve.evolution.tracks.program import ProgramFile
from mainspring.improve.evolution.tracks.program_history import ProgramHistory
from mainspring.improve.evolution.tracks.static_checks import StaticChecks, case_quotes
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.runtime.agent_folder.manifest import agent_name

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
    uncommitted: Callable[[Path, Sequence[str]], Awaitable[list[str]]] | None = None
    """Which files differ from the last commit; `None`: it does not matter."""
    metric: Metric | None = None
    """Scores answers, instead of the suite's graders."""
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

    def learning(self) -> Learning:
        """What the agent's sessions suggest. Blocks. Raises: InvalidInput."""
        return Learning(
            log=self.log,
            agent_name=agent_name(self.folder),
            current=self.read(),
            check=self.checks(),
            place=self.place / "proposals",
        )

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
        ledger = await self.versions.ready()
        base = await to_thread.run_sync(self.read)
        if trigger == "manual":
            await self._require_committed(base)
        await self.versions.record_current(ledger, base)
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

    async def _require_committed(self, base: Candidate) -> None:
        """Raises: InvalidInput: what a promotion would change is not committed."""
        if self.uncommitted is None:
            return
        if names := await self.uncommitted(self.folder, sorted(base.texts)):
            raise InvalidInput(
                f"not committed: {', '.join(names[:5])}; commit it, so that you can tell your"
                " changes from the campaign's, or use --allow-dirty"
            )

    def plan(self, campaign_id: str, base: Candidate) -> CampaignPlan:
        """Raises: InvalidInput: there are no cases for the search or for the gate."""
        settings, suite = self.settings, self.suite_file.suite
        develop, sealed = split_cases(suite.cases, settings.rotation)
        if not develop or not sealed:
            raise InvalidInput(
                f"suite {suite.name} has {len(develop)} cases to develop with and {len(sealed)}"
                " sealed ones; both are needed"
            )
        preset = PRESETS[settings.preset]
        is_small = len(develop) < _SMALL
        return CampaignPlan(
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
        plan = msgspec.json.decode(await self.log.blob(campaign.created.plan), type=CampaignPlan)
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
            if self.metric is not None:
                runs = MetricTrials(runs, self.log, self.suite_file.suite.cases, self.metric)
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
                assets=await self.assets(),
                task="" if self.program is None else self.program.program.text,
            )
            await self._improve(ports, campaign.created)

    async def assets(self) -> list[Asset]:
        """What worked before, here and in what was imported."""
        content = await to_thread.run_sync(read_bounded, self.place / ASSETS_FILE)
        imported = [] if content is None else read_assets(content)
        return [*await list_assets(self.log, self.agent), *imported]

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

    @property
    def versions(self) -> AgentVersions:
        return AgentVersions(
            log=self.log,
            folder=self.folder,
            agent=self.agent,
            sender=self.sender,
            clock=self.clock,
            place=self.place,
        )

    async def promote(
        self, campaign_id: str, *, diff_hash: str | None = None, share: float | None = None
    ) -> VersionCreated:
        """Use the version that a campaign has promoted. Raises: InvalidInput."""
        campaign = await read_campaign(self.log, campaign_id)
        share = self.settings.canary if share is None else share
        return await self.versions.promote(
            campaign, author=self.author, diff_hash=diff_hash, share=share
        )

    async def roll_back(self, number: int | None, reason: str) -> VersionCreated:
        """Restore a version; by default, end the canary, or restore the version before the one in
        use. Raises: InvalidInput."""
        return await self.versions.roll_back(number, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one trial costs."""

    cost_usd: Decimal
    seconds: float
    basis: str


def _plan_of_proposal(plan: CampaignPlan, number: int, trigger: str) -> CampaignPlan:
    """A stream of proposals is screened first, on other cases each time, so that neither a lucky
    proposal nor many of them wear the sealed cases out. A re-run after an alarm is not."""
    if trigger == DRIFT:
        return replace(plan, gate=CONFIRM, gates=1)
    sealed = list(plan.sealed)
    Random(f"{number} {plan.seed}").shuffle(sealed)
    return replace(plan, sealed=tuple(sealed), gate=stream_policy(plan.gate, len(sealed)), gates=1)


def split_cases(cases: Sequence[Case], rotation: int = 0) -> tuple[list[str], list[str]]:
    """The cases for the search, and the sealed ones. Without a split `holdout`, sealed cases are
    drawn by their ids, so that they stay the same until somebody rotates them."""
    sealed = [case.id for case in cases if case.split == "holdout"]
    if not sealed:
        names = sorted(case.id for case in cases)
        chosen = Random(f"sealed {rotation}" if rotation else "sealed").sample(
            names, round(_SEALED_SHARE * len(names))
        )
        sealed = [case.id for case in cases if case.id in chosen]
    return [case.id for case in cases if case.id not in sealed], sealed


def _no_check(_: Candidate, __: Candidate) -> str | None:
    """An earlier version was checked before it was used."""
    return None
