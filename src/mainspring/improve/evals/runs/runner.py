"""Runs a suite: selects the trials, reuses earlier results, and limits the cost. An interrupted run
is resumed, and no trial is run or paid for twice."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mainspring.core import ids
from mainspring.core.events import EvalCaseEnded, EvalRunCreated, EvalRunEnded
from mainspring.core.model import Model
from mainspring.harness.budget import Budget
from mainspring.improve.evals.runs.case_selection import Selection, select_cases
from mainspring.improve.evals.runs.run_log import (
    MAX_EARLIER_RUNS,
    EvalRun,
    create_run,
    existing_runs,
    read_run,
)
from mainspring.improve.evals.runs.trials import (
    MakeScript,
    TrialKey,
    TrialSetup,
    discard_workspace,
    run_trial,
)
from mainspring.improve.evals.scoring.grading_context import RunProgram
from mainspring.improve.evals.scoring.judge_calls import RunBudget, judge_asker
from mainspring.improve.evals.scoring.judges import Judges, is_scripted, scripted_models_of
from mainspring.improve.evals.scoring.labels import read_calibrations
from mainspring.improve.evals.suite import ENCODER, Case, Script, Suite, SuiteFile
from mainspring.improve.evals.suites.case_recording import CaseRecording, read_case_recording
from mainspring.improve.evals.suites.suite_files import case_content_hash
from mainspring.log.session_lease import hold_session
from mainspring.log.task_groups import unwrap_single_error
from mainspring.log.writer import Writer
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.pinned_agent import definition_of
from mainspring.runtime.session.session import Runtime

# Of a trial and its output, until a run has been measured.
_GUESSED_TURNS, _GUESSED_OUTPUT_TOKENS = 3, 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    budget_usd: Decimal | None = None
    parallel: int | None = None
    fresh: bool = False
    """Whether to run all trials, without results of earlier runs."""
    keeps_workspaces: bool = False
    script_of: Callable[[Case], Script] | None = None
    """Scripted models instead of the agent's own, to check the health of a suite."""
    offline: Literal["tools", "all"] | None = None
    """Whether cases with a recording use its tool results, or with `all` its model replies too."""
    listed_as: str = ""
    """A suffix that separates runs of another purpose from the suite's own."""
    run_id: str | None = None
    """The id of a run; a later call with the same id resumes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The plan of a run, before it costs anything."""

    created: EvalRunCreated
    is_resumed: bool
    trials: tuple[TrialKey, ...]
    """All trials."""
    done: tuple[EvalCaseEnded, ...]
    """Results of this run, if it is resumed."""
    reused: tuple[EvalCaseEnded, ...]
    """Results of earlier runs that are still valid."""
    estimate_usd: Decimal
    estimate_basis: str

    @property
    def open_trials(self) -> list[TrialKey]:
        settled = {(item.case_id, item.trial) for item in (*self.done, *self.reused)}
        return [key for key in self.trials if (key.case.id, key.number) not in settled]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRunner:
    """Runs suites of one agent."""

    runtime: Runtime
    agent: Agent
    run_program: RunProgram
    make_script: MakeScript
    place: Path
    """The folder of the workspaces."""
    verdicts: Path
    """The folder of judges' verdicts. It is not beside the store: that can come with a repository,
    and a verdict in it would decide."""
    monotonic: Callable[[], float]
    model_hash: str = ""
    """The hash of a model that is a file."""
    read_scripts: Callable[[str], Mapping[str, Model]] = lambda _: {}
    """Reads scripted models of cases and judges from the agent's folder. Blocks."""
    hash_scripts: Callable[[Sequence[str]], str] = ",".join
    """The hash of the files of scripted models. Blocks."""

    async def plan(
        self, suite_file: SuiteFile, selection: Selection, settings: RunSettings
    ) -> RunPlan:
        """Raises: InvalidInput: no case is selected."""
        suite, log = suite_file.suite, self.runtime.log
        await to_thread.run_sync(self.open_scripts, suite_file)
        name = suite.name + settings.listed_as
        runs = await existing_runs(log, self.agent.name, name, newest=MAX_EARLIER_RUNS)
        cases = select_cases(suite_file, selection, runs[0] if runs else None)
        hashes = await to_thread.run_sync(self._hashes, suite_file, cases, settings)
        trials = tuple(self._trials(suite_file, cases, hashes, selection, settings))
        created = EvalRunCreated(
            run_id=settings.run_id or ids.new_id(ids.SESSION),
            suite=name,
            suite_hash=suite_file.hash,
            agent_name=self.agent.name,
            model=self.agent.model,
            cases=hashes,
            trials=selection.trials or suite.trials,
            agent_version=self.agent.version,
            budget_usd=None if settings.budget_usd is None else str(settings.budget_usd),
        )
        unfinished = _unfinished(runs, created, settings)
        done = () if unfinished is None else tuple(unfinished.results.values())
        reused = () if settings.fresh else tuple(_reusable(trials, runs, done))
        estimate, basis = self._estimate(trials, runs, len(done) + len(reused))
        return RunPlan(
            created=created if unfinished is None else unfinished.created,
            is_resumed=unfinished is not None,
            trials=trials,
            done=done,
            reused=reused,
            estimate_usd=estimate,
            estimate_basis=basis,
        )

    async def run(
        self,
        suite_file: SuiteFile,
        plan: RunPlan,
        settings: RunSettings,
        on_result: Callable[[EvalCaseEnded], None] = lambda _: None,
    ) -> EvalRun:
        """Run the open trials. Results are passed to `on_result` after they were written to the
        log.

        Raises: LeaseHeld: another process runs it.
        """
        log, run_id = self.runtime.log, plan.created.run_id
        if not plan.is_resumed:
            await create_run(log, plan.created, sender=self.runtime.sender)
        place = self.place / run_id[-12:]
        async with hold_session(log, run_id) as writer:
            run = await read_run(log, run_id)
            budget = RunBudget(settings.budget_usd, spent_usd=run.cost_usd)
            setup = TrialSetup(
                runtime=self.runtime,
                agent=self.agent,
                suite_file=suite_file,
                run_id=run_id,
                place=place,
                run_program=self.run_program,
                make_script=self.make_script,
                monotonic=self.monotonic,
                budget=Budget(ledger=budget),
                judges=partial(self.judges, suite_file, budget),
                keeps_workspaces=settings.keeps_workspaces,
            )
            for reused in plan.reused:
                if (reused.case_id, reused.trial) not in run.results:
                    run.results[reused.case_id, reused.trial] = reused
                    writer.stage(reused)
            await writer.commit()
            parallel = settings.parallel or suite_file.suite.parallel
            await self._run_open(
                setup,
                plan.open_trials,
                writer,
                parallel,
                _Progress(run, budget, on_result, partial(discard_workspace, setup)),
            )
            if run.ended is None:
                await writer.append(_run_ended(run, budget))
                run = await read_run(log, run_id)
        await to_thread.run_sync(_remove_if_empty, place)
        return run

    def judges(self, suite_file: SuiteFile, budget: RunBudget | None = None) -> Judges:
        return Judges(
            ask=judge_asker(self.runtime.models, budget or RunBudget(None)),
            verdicts=self.verdicts,
            default_model=self.agent.model,
            judged_model=self.agent.model,
            calibrations=read_calibrations(suite_file),
            content_of=self._content_of,
        )

    def _content_of(self, model: str) -> str:
        """The hash of a scripted model's file. Blocks."""
        if is_scripted(model):
            with suppress(OSError):  # one that is no file
                return self.hash_scripts([model])
        return ""

    def open_scripts(self, suite_file: SuiteFile) -> None:
        """Register the scripted models of cases and judges. Blocks.

        Raises: InvalidInput: there is no such file in the agent's folder."""
        for case in suite_file.suite.cases:
            for name in _scripts_of(suite_file.suite, case):
                for script, model in self.read_scripts(name).items():
                    self.runtime.models.put(script, model)

    async def _run_open(
        self,
        setup: TrialSetup,
        trials: Sequence[TrialKey],
        writer: Writer,
        parallel: int,
        progress: _Progress,
    ) -> None:
        jobs = iter(trials)
        send, receive = anyio.create_memory_object_stream[EvalCaseEnded](math.inf)

        async def work(results: MemoryObjectSendStream[EvalCaseEnded]) -> None:
            with results:
                for key in jobs:
                    if progress.budget.is_exhausted:
                        return
                    results.send_nowait(await run_trial(setup, key))

        with unwrap_single_error(), send, receive:
            async with anyio.create_task_group() as group:
                for _ in range(min(parallel, len(trials))):
                    group.start_soon(work, send.clone())
                send.close()
                async for ended in receive:
                    await self._record(ended, receive, writer, progress)

    async def _record(
        self,
        first: EvalCaseEnded,
        receive: MemoryObjectReceiveStream[EvalCaseEnded],
        writer: Writer,
        progress: _Progress,
    ) -> None:
        """Write all results in one commit."""
        results = [first]
        with suppress(anyio.WouldBlock, anyio.EndOfStream):
            while True:
                results.append(receive.receive_nowait())
        await writer.append(*results)
        for ended in results:
            progress.run.results[ended.case_id, ended.trial] = ended
            progress.on_result(ended)
            await progress.discard(ended)

    def _trials(
        self,
        suite_file: SuiteFile,
        cases: Sequence[Case],
        hashes: dict[str, str],
        selection: Selection,
        settings: RunSettings,
    ) -> Iterator[TrialKey]:
        for case in cases:
            recording = _recording_of(suite_file, case, settings)
            script = None if settings.script_of is None else settings.script_of(case)
            if recording is not None and settings.offline == "all":
                script = recording.script
            for number in range(
                1, (selection.trials or case.trials or suite_file.suite.trials) + 1
            ):
                yield TrialKey(
                    case=case,
                    number=number,
                    case_hash=hashes[case.id],
                    script=script,
                    recording=recording,
                )

    def _hashes(
        self, suite_file: SuiteFile, cases: Sequence[Case], settings: RunSettings
    ) -> dict[str, str]:
        """The hashes of cases. Blocks while it reads files."""
        version = (self.agent.version or "").rpartition("-")[2]  # equal files have equal hashes
        definition = msgspec.structs.replace(definition_of(self.agent), version=version)
        agent = ENCODER.encode((definition, self.model_hash))
        hashes: dict[str, str] = {}
        for case in cases:
            digest = hashlib.sha256(agent + (settings.offline or "").encode())
            digest.update(case_content_hash(suite_file.suite, case, suite_file.folder).encode())
            if scripts := _scripts_of(suite_file.suite, case):
                digest.update(self.hash_scripts(scripts).encode())
            if settings.script_of is not None:
                digest.update(ENCODER.encode(settings.script_of(case)))
            hashes[case.id] = digest.hexdigest()
        return hashes

    def _estimate(
        self, trials: Sequence[TrialKey], runs: Sequence[EvalRun], settled: int
    ) -> tuple[Decimal, str]:
        """The estimated cost of the open trials, and the basis of the estimate."""
        open_trials = len(trials) - settled
        earlier = [
            Decimal(item.cost_usd)
            for run in runs
            if run.created.model == self.agent.model
            for item in run.results.values()
            if item.from_run is None and item.outcome != "error"
        ]
        if earlier:
            mean = sum(earlier, Decimal(0)) / len(earlier)
            return mean * open_trials, f"the mean of {len(earlier)} earlier trials"
        facts = self.runtime.models.facts(self.agent.model)
        instruction_tokens = len(self.agent.instructions) / facts.bytes_per_token
        tokens = _GUESSED_TURNS * int(instruction_tokens + 2_000)
        price = facts.price
        cost = (
            tokens * price.input + _GUESSED_OUTPUT_TOKENS * _GUESSED_TURNS * price.output
        ) / 10**6
        return cost * open_trials, f"a guess of {_GUESSED_TURNS} turns per trial"


def _scripts_of(suite: Suite, case: Case) -> list[str]:
    own = [case.model] if case.model is not None and is_scripted(case.model) else []
    return [*own, *scripted_models_of(suite.graders_of(case))]


@dataclass(frozen=True, slots=True)
class _Progress:
    run: EvalRun
    budget: RunBudget
    on_result: Callable[[EvalCaseEnded], None]
    discard: Callable[[EvalCaseEnded], Awaitable[None]]


def _recording_of(suite_file: SuiteFile, case: Case, settings: RunSettings) -> CaseRecording | None:
    if settings.offline is None or case.recording is None:
        return None
    return read_case_recording(suite_file.folder / case.recording)


def _unfinished(
    runs: Sequence[EvalRun], planned: EvalRunCreated, settings: RunSettings
) -> EvalRun | None:
    """The run with the given id, or the newest run if it has the same plan and was interrupted."""
    if settings.run_id is not None:
        return next((run for run in runs if run.id == settings.run_id), None)
    if settings.fresh:
        return None
    newest = runs[0] if runs else None
    if newest is None or newest.ended is not None:
        return None
    created = newest.created
    is_same = (created.cases, created.trials, created.model) == (
        planned.cases,
        planned.trials,
        planned.model,
    )
    return newest if is_same else None


def _reusable(
    trials: Sequence[TrialKey], runs: Sequence[EvalRun], done: Sequence[EvalCaseEnded]
) -> Iterator[EvalCaseEnded]:
    """Results of trials that have not changed since; trials with errors run again."""
    settled = {(item.case_id, item.trial) for item in done}
    earlier: dict[tuple[str, int, str], EvalCaseEnded] = {}
    for run in runs:
        for item in run.results.values():
            if item.outcome != "error":
                reused = msgspec.structs.replace(item, from_run=item.from_run or run.id)
                earlier.setdefault((item.case_id, item.trial, item.case_hash), reused)
    for key in trials:
        result = earlier.get((key.case.id, key.number, key.case_hash))
        if result is not None and (key.case.id, key.number) not in settled:
            yield result


def _run_ended(run: EvalRun, budget: RunBudget) -> EvalRunEnded:
    outcomes = [item.outcome for item in run.results.values()]
    return EvalRunEnded(
        status="budget_reached" if budget.is_exhausted else "completed",
        passed=outcomes.count("passed"),
        failed=outcomes.count("failed"),
        errors=outcomes.count("error"),
        cost_usd=str(run.cost_usd),
    )


def _remove_if_empty(place: Path) -> None:
    with suppress(OSError):
        place.rmdir()
