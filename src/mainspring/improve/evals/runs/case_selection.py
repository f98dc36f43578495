"""Selects the cases of a run."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.core.errors import InvalidInput
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.suite import Case, SuiteFile, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The cases of a suite to run, and how often."""

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    tier: Tier | None = None
    """`fast` leaves out the cases of the tier `full`."""
    only_failed: bool = False
    """Only cases that did not pass in the last run."""
    trials: int | None = None
    splits: tuple[str, ...] = ()


def select_cases(suite_file: SuiteFile, selection: Selection, last: EvalRun | None) -> list[Case]:
    """Raises: InvalidInput: there is no such case, or no case is selected."""
    suite = suite_file.suite
    case_ids = {case.id for case in suite.cases}
    if missing := [name for name in selection.cases if name not in case_ids]:
        raise InvalidInput(f"suite {suite.name} has no case {missing[0]}")
    failed = _failed_cases(last) if selection.only_failed else case_ids
    cases = [case for case in suite.cases if case.id in failed and _is_selected(case, selection)]
    if not cases:
        raise InvalidInput(f"no case of suite {suite.name} is selected")
    return cases


def _is_selected(case: Case, selection: Selection) -> bool:
    return (
        (not selection.cases or case.id in selection.cases)
        and (not selection.tags or not set(selection.tags).isdisjoint(case.tags))
        and (not selection.splits or case.split in selection.splits)
        and (selection.tier != "fast" or case.tier == "fast")
    )


def _failed_cases(last: EvalRun | None) -> set[str]:
    if last is None:
        raise InvalidInput("there is no earlier run, so there are no failed cases")
    return {item.case_id for item in last.results.values() if item.outcome != "passed"}
