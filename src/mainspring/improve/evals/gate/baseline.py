"""The results that a gate compares with: a file in git."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evals.gate.comparison import CaseResult, case_results
from mainspring.improve.evals.runs.run_log import EvalRun


class Baseline(Struct, frozen=True, kw_only=True):
    """The results that a gate compares with, stored in a file in git."""

    suite: str
    suite_hash: str
    model: str
    run_id: str
    time: datetime
    cases: dict[str, CaseResult]
    cost_usd: str
    agent_version: str | None = None


def baseline_of(run: EvalRun) -> Baseline:
    created = run.created
    return Baseline(
        suite=created.suite,
        suite_hash=created.suite_hash,
        model=created.model,
        run_id=run.id,
        time=run.started,
        cases=case_results(run.results.values()),
        cost_usd=str(sum((Decimal(item.cost_usd) for item in run.results.values()), Decimal(0))),
        agent_version=created.agent_version,
    )


def encode_baseline(baseline: Baseline) -> bytes:
    """Encode it with a line for each case, for readable diffs."""
    return msgspec.json.format(msgspec.json.encode(baseline, order="sorted"), indent=1) + b"\n"


def read_baseline(file: Path) -> Baseline | None:
    """`None` if there is none. Raises: InvalidInput: it is damaged."""
    content = read_bounded(file, max_bytes=50_000_000)
    try:
        return None if content is None else msgspec.json.decode(content, type=Baseline)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{file}: {error}; --save-baseline writes a new one") from error
