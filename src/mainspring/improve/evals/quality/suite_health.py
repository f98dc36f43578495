"""Checks the health of a suite: an agent that does nothing must fail, the case's own solution must
pass, and another case's solution must fail. Also finds cases that no longer distinguish agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mainspring.core.errors import SessionNotFound
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.run_log import MAX_EARLIER_RUNS, EvalRun, existing_runs
from mainspring.improve.evals.runs.runner import RunSettings, SuiteRunner
from mainspring.improve.evals.suite import Case, Script, SuiteFile

NOTHING = Script(steps=({"says": ""},))
"""An agent that does nothing and says nothing."""
_MIN_RUNS = 5
"""A case that passed in this many runs, and never failed, does not distinguish agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteHealth:
    noop_passed: tuple[str, ...]
    """Cases that pass with an agent that does nothing."""
    oracle_failed: tuple[str, ...]
    """Cases that fail with their own solution."""
    failure_passed: tuple[str, ...]
    """Cases that pass with their own failing script."""
    shuffled_passed: tuple[str, ...]
    """Cases that pass with another case's solution."""
    solutions: int
    """Cases that have a solution."""
    cases: int
    never_failed: tuple[str, ...]
    missing_sources: tuple[str, ...]
    tags: dict[str, int]

    @property
    def is_healthy(self) -> bool:
        return not (self.noop_passed or self.oracle_failed or self.failure_passed)


ScriptRuns: TypeAlias = Mapping[str, EvalRun | None]
"""The results by purpose: `no-op`, `oracle`, `failure`, `shuffled`."""


async def check_health(runner: SuiteRunner, suite_file: SuiteFile) -> SuiteHealth:
    """Run the suite with scripted models; only its judges cost money."""
    cases = suite_file.suite.cases
    runs = await run_scripts(runner, suite_file)
    return SuiteHealth(
        noop_passed=_cases_with(runs["no-op"], is_passed=True),
        oracle_failed=_cases_with(runs["oracle"], is_passed=False),
        failure_passed=_cases_with(runs["failure"], is_passed=True),
        shuffled_passed=_cases_with(runs["shuffled"], is_passed=True),
        solutions=sum(case.solution is not None for case in cases),
        cases=len(cases),
        never_failed=await _never_failed(runner, suite_file),
        missing_sources=await _missing_sources(runner, suite_file),
        tags=dict(Counter(tag for case in cases for tag in case.tags or ("untagged",))),
    )


async def run_scripts(runner: SuiteRunner, suite_file: SuiteFile) -> ScriptRuns:
    """Run the suite with an agent that does nothing, with each case's own scripts, and with the
    solution of another case."""
    cases = suite_file.suite.cases
    solved = [case for case in cases if case.solution is not None]
    next_cases = dict(zip((case.id for case in solved), [*solved[1:], *solved[:1]], strict=True))
    scripts: dict[str, tuple[list[str], Callable[[Case], Script | None]]] = {
        "no-op": ([case.id for case in cases], lambda _: NOTHING),
        "oracle": ([case.id for case in solved], lambda case: case.solution),
        "failure": (
            [case.id for case in cases if case.failure is not None],
            lambda case: case.failure,
        ),
        "shuffled": (
            [name for name, other in next_cases.items() if name != other.id],
            lambda case: next_cases[case.id].solution,
        ),
    }
    return {
        purpose: await _run(runner, suite_file, names, script, purpose)
        for purpose, (names, script) in scripts.items()
    }


async def _run(
    runner: SuiteRunner,
    suite_file: SuiteFile,
    names: list[str],
    script: Callable[[Case], Script | None],
    purpose: str,
) -> EvalRun | None:
    if not names:
        return None

    def script_of(case: Case) -> Script:
        return script(case) or NOTHING

    settings = RunSettings(script_of=script_of, listed_as=f" ({purpose})")
    plan = await runner.plan(suite_file, Selection(cases=tuple(names), trials=1), settings)
    return await runner.run(suite_file, plan, settings)


def _cases_with(run: EvalRun | None, *, is_passed: bool) -> tuple[str, ...]:
    items = () if run is None else run.results.values()
    return tuple(sorted(item.case_id for item in items if (item.outcome == "passed") == is_passed))


async def _never_failed(runner: SuiteRunner, suite_file: SuiteFile) -> tuple[str, ...]:
    name = suite_file.suite.name
    runs = await existing_runs(runner.runtime.log, runner.agent.name, name, newest=MAX_EARLIER_RUNS)
    passed: Counter[str] = Counter()
    failed: set[str] = set()
    for run in runs:
        results = [item for item in run.results.values() if item.from_run is None]
        passed.update({item.case_id for item in results if item.outcome == "passed"})
        failed |= {item.case_id for item in results if item.outcome == "failed"}
    return tuple(
        sorted(
            case_id
            for case_id, count in passed.items()
            if count >= _MIN_RUNS and case_id not in failed
        )
    )


async def _missing_sources(runner: SuiteRunner, suite_file: SuiteFile) -> tuple[str, ...]:
    missing: list[str] = []
    for case in suite_file.suite.cases:
        if case.source is not None:
            try:
                await runner.runtime.log.session(case.source)
            except SessionNotFound:
                missing.append(case.id)
    return tuple(missing)
