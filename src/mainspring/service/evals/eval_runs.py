"""Runs of the suites in the folder that the service runs in, for people who read them: the verdict,
the reasons, and every case with the sessions of its trials. They belong to the folder's tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from anyio import to_thread
from msgspec import Meta, Struct

from mainspring.core.clock import from_micros
from mainspring.core.errors import InvalidInput, NotFound, SessionNotFound
from mainspring.core.lazy_module import LazyModule
from mainspring.log.session_log import SessionLog
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.session_reports import require_readable_log
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page, Position, cut_page, decode_cursor

if TYPE_CHECKING:
    from mainspring.core.events import EvalCaseEnded
    from mainspring.improve.evals.gate import baseline as baselines
    from mainspring.improve.evals.gate import comparison, decision
    from mainspring.improve.evals.reports import report_files
    from mainspring.improve.evals.runs import run_log
    from mainspring.improve.evals.runs.run_log import EvalRun
    from mainspring.improve.evals.suites import case_recording, suite_files
    from mainspring.runtime.agent import Agent
else:  # slow to import, and most services show no eval runs
    case_recording = LazyModule("mainspring.improve.evals.suites.case_recording")
    comparison = LazyModule("mainspring.improve.evals.gate.comparison")
    report_files = LazyModule("mainspring.improve.evals.reports.report_files")
    run_log = LazyModule("mainspring.improve.evals.runs.run_log")
    suite_files = LazyModule("mainspring.improve.evals.suites.suite_files")
    baselines = LazyModule("mainspring.improve.evals.gate.baseline")
    decision = LazyModule("mainspring.improve.evals.gate.decision")

_MAX_RUNS = 100
"""The newest runs of each suite that are listed; the command line lists all."""
_MAX_LINES, _MAX_LINE_CHARS = 8, 400
"""Of the reasons why one trial failed; its session has all of them."""
EvalVerdict: TypeAlias = Literal["running", "passed", "failed", "no verdict"]
CaseName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class ListEvalRuns(Struct, frozen=True, kw_only=True):
    suite: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None


class EvalRunLine(Struct, frozen=True, kw_only=True):
    """A run in a list."""

    id: str
    """The session that is the run."""
    suite: str
    agent_name: str
    agent_version: str | None
    model: str
    started_at: datetime
    updated_at: datetime
    status: Literal["running", "completed", "budget_reached"]
    verdict: EvalVerdict
    """`passed`: every trial did; `no verdict`: errors, or the budget was reached."""
    cases: int
    trials: int
    """How many trials it has in all."""
    passed: int
    failed: int
    errors: int
    cost_usd: str
    budget_usd: str | None
    type: Literal["eval_run"] = "eval_run"


class EvalTrialView(Struct, frozen=True, kw_only=True):
    trial: int
    outcome: Literal["passed", "failed", "error"]
    score: float
    session_id: str
    reasons: tuple[str, ...]
    """Why it did not pass."""
    seconds: float
    turns: int
    tool_calls: int
    cost_usd: str
    from_run: str | None
    """The earlier run that the result was reused from."""


class EvalCaseView(Struct, frozen=True, kw_only=True):
    case_id: str
    tags: tuple[str, ...]
    change: Literal["worse", "better", "perhaps worse"] | None
    """Compared with the baseline, else with the run before."""
    trials: list[EvalTrialView]


class EvalGateView(Struct, frozen=True, kw_only=True):
    """What the suite's gate says about the run now."""

    is_open: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    baseline_run_id: str | None


class EvalRunDetail(Struct, frozen=True, kw_only=True):
    run: EvalRunLine
    pass_rate: float
    """The mean over the cases with a verdict."""
    low: float
    high: float
    """The 95 % interval of the pass rate."""
    gate: EvalGateView | None
    """`null`: the suite has changed since, or is gone."""
    compared_with: str | None
    """The run that `comparison` is about."""
    comparison: str | None
    cases: list[EvalCaseView]
    """Those that failed first."""


class AddEvalCase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    suite: CaseName = "sessions"
    """The suite to add it to: a file in `evals/` of the folder."""
    case: CaseName | None = None
    """Default: from the id of the session."""


class AddedEvalCase(Struct, frozen=True, kw_only=True):
    suite: str
    case_id: str
    file: str
    """Relative to the folder."""
    type: Literal["eval_case"] = "eval_case"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRuns:
    sessions: Sessions
    folder: Path
    tenant: str
    """The tenant of the folder."""
    open_agent: Callable[[], Agent]
    """The folder's agent. Blocks."""

    @property
    def log(self) -> SessionLog:
        return self.sessions.log

    async def page(self, tenant: str, query: ListEvalRuns) -> Page[EvalRunLine]:
        """The runs of the folder's suites, newest first. Raises: InvalidInput."""
        (skipped,) = decode_cursor(query.page, tuple[Position]) if query.page else (0,)
        if tenant != self.tenant:
            return Page(data=())
        listed = [
            item
            for item in await self._listed()
            if query.suite is None or item[1].startswith(query.suite)
        ]
        chosen = listed[skipped : skipped + query.limit + 1]
        lines: list[EvalRunLine] = []
        for _, _, run_id in chosen:
            with suppress(SessionNotFound):
                lines.append(await self._line(await run_log.read_run(self.log, run_id)))
        end = skipped + query.limit
        return Page(
            data=lines[: query.limit],
            next_page=cut_page(chosen, query.limit, lambda _: (end,)).next_page,
        )

    async def get(self, tenant: str, run_id: str) -> EvalRunDetail:
        """Raises: NotFound."""
        listed = await self._listed() if tenant == self.tenant else []
        if all(item[2] != run_id for item in listed):
            raise NotFound("eval_run", run_id)
        run = await run_log.read_run(self.log, run_id)
        gate, baseline = await to_thread.run_sync(self._gate, run)
        before, compared_with = None if baseline is None else baseline.cases, None
        if baseline is not None:
            compared_with = baseline.run_id
        elif (earlier := await self._earlier(run, listed)) is not None:
            before, compared_with = comparison.case_results(earlier.results.values()), earlier.id
        results = comparison.case_results(run.results.values())
        compared = None if before is None else comparison.compare(before, results)
        summary = comparison.summarize(results)
        return EvalRunDetail(
            run=await self._line(run),
            pass_rate=summary.pass_rate,
            low=summary.interval.low,
            high=summary.interval.high,
            gate=gate,
            compared_with=compared_with,
            comparison=None if compared is None else compared.text,
            cases=_cases(run, compared),
        )

    async def add_case(
        self, principal: Principal, session_id: str, request: AddEvalCase
    ) -> AddedEvalCase:
        """Append a case made of a session to a suite of the folder.

        Raises: NotFound. InvalidInput: the folder belongs to another tenant, or the session has no
        message of a user.
        """
        session = await self.sessions.row(principal, session_id)
        if principal.tenant != self.tenant:
            raise InvalidInput(f"suites belong to the tenant {self.tenant}")
        require_readable_log(session_id, session.head.seq)
        events = await self.log.read(session_id)
        case_id = request.case or f"session-{session_id[-8:]}"
        file = await to_thread.run_sync(
            case_recording.add_case, self.folder, request.suite, case_id, session_id, events
        )
        return AddedEvalCase(
            suite=request.suite, case_id=case_id, file=str(file.relative_to(self.folder))
        )

    async def _listed(self) -> list[tuple[int, str, str]]:
        """When each run started, its suite and its id, newest first."""
        agent, names = await to_thread.run_sync(self._names)
        found: list[tuple[int, str, str]] = []
        for name in names:
            for created in (await run_log.list_runs(self.log, agent, name))[-_MAX_RUNS:]:
                with suppress(SessionNotFound):
                    row = await self.log.session(created.run_id)
                    found.append((row.created, created.suite, created.run_id))
        return sorted(found, reverse=True)

    def _names(self) -> tuple[str, list[str]]:
        """The folder's agent, and the names of its suites with those of their drills."""
        files = suite_files.find_suites(self.folder)
        return self.open_agent().name, [
            f"{file.stem}{suffix}" for file in files for suffix in ("", " (drill)")
        ]

    async def _earlier(
        self, run: EvalRun, listed: Sequence[tuple[int, str, str]]
    ) -> EvalRun | None:
        """The newest run of the suite before this one that has ended with results."""
        ids = [run_id for _, suite, run_id in listed if suite == run.created.suite]
        for run_id in ids[ids.index(run.id) + 1 :][: run_log.MAX_EARLIER_RUNS]:
            with suppress(SessionNotFound):
                earlier = await run_log.read_run(self.log, run_id)
                if earlier.ended is not None and earlier.results:
                    return earlier
        return None

    async def _line(self, run: EvalRun) -> EvalRunLine:
        created, ended = run.created, run.ended
        outcomes = [item.outcome for item in run.results.values()]
        row = await self.log.session(run.id)
        return EvalRunLine(
            id=run.id,
            suite=created.suite,
            agent_name=created.agent_name,
            agent_version=created.agent_version,
            model=created.model,
            started_at=run.started,
            updated_at=from_micros(row.updated),
            status="running" if ended is None else ended.status,
            verdict=_verdict(run),
            cases=len(created.cases),
            trials=len(created.cases) * created.trials,
            passed=outcomes.count("passed"),
            failed=outcomes.count("failed"),
            errors=outcomes.count("error"),
            cost_usd=str(run.cost_usd),
            budget_usd=created.budget_usd,
        )

    def _gate(self, run: EvalRun) -> tuple[EvalGateView | None, baselines.Baseline | None]:
        """What the gate says, and its baseline. Blocks."""
        try:
            suite_file = suite_files.named_suite(self.folder, run.created.suite, field="suite")
            baseline = baselines.read_baseline(suite_file.baseline)
        except InvalidInput:
            return None, None
        if suite_file.hash != run.created.suite_hash:
            return None, baseline
        result = decision.gate(suite_file.suite, run, baseline)
        view = EvalGateView(
            is_open=result.is_open,
            reasons=result.reasons,
            notes=result.notes,
            baseline_run_id=None if baseline is None else baseline.run_id,
        )
        return view, baseline


def _verdict(run: EvalRun) -> EvalVerdict:
    outcomes = [item.outcome for item in run.results.values()]
    if run.ended is None:
        return "running"
    if "failed" in outcomes:
        return "failed"
    is_complete = run.ended.status == "completed" and outcomes
    return "passed" if is_complete and "error" not in outcomes else "no verdict"


def _cases(run: EvalRun, compared: comparison.Comparison | None) -> list[EvalCaseView]:
    trials: dict[str, list[EvalCaseEnded]] = {}
    for item in run.sorted_results:
        trials.setdefault(item.case_id, []).append(item)
    changes: dict[str, Literal["worse", "better", "perhaps worse"]] = {}
    if compared is not None:
        evidence = compared.evidence
        changes |= {item.case_id: "perhaps worse" for item in evidence.undecided}
        changes |= {item.case_id: "better" for item in evidence.better}
        changes |= {item.case_id: "worse" for item in evidence.worse}
    cases = [
        EvalCaseView(
            case_id=case_id,
            tags=items[0].tags,
            change=changes.get(case_id),
            trials=[_trial(item) for item in items],
        )
        for case_id, items in trials.items()
    ]
    return sorted(cases, key=lambda case: all(item.outcome == "passed" for item in case.trials))


def _trial(item: EvalCaseEnded) -> EvalTrialView:
    reasons = () if item.outcome == "passed" else report_files.failures_of(item)
    return EvalTrialView(
        trial=item.trial,
        outcome=item.outcome,
        score=item.score,
        session_id=item.session_id,
        reasons=tuple(line[:_MAX_LINE_CHARS] for line in reasons[:_MAX_LINES]),
        seconds=item.seconds,
        turns=item.turns,
        tool_calls=item.tool_calls,
        cost_usd=item.cost_usd,
        from_run=item.from_run,
    )
