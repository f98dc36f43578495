"""skill-creator's files: reads and writes `evals.json`; for a run, writes `grading.json` for each
trial and one `benchmark.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from statistics import fmean, stdev

import msgspec
from msgspec import Struct

from mainspring.core.events import EvalCaseEnded
from mainspring.improve.evals.exchange.imported_suite import ImportedSuite, as_id
from mainspring.improve.evals.graders import Criterion, Judge
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.scoring.judges import criteria_of
from mainspring.improve.evals.suite import Case, Suite

WITH, WITHOUT = "with_skill", "without_skill"


class _SkillEval(Struct, frozen=True):
    prompt: str
    id: int | str = ""
    expected_output: str = ""
    expectations: tuple[str, ...] = ()


class _SkillEvals(Struct, frozen=True):
    evals: tuple[_SkillEval, ...]
    skill_name: str = "skill"


def read_skill_evals(tree: object, name: str) -> ImportedSuite:
    """Raises: msgspec.ValidationError: it is not skill-creator's `evals.json`."""
    skill_evals = msgspec.convert(tree, _SkillEvals)
    cases: list[Case] = []
    for number, item in enumerate(skill_evals.evals, 1):
        expectations = item.expectations or (
            (item.expected_output,) if item.expected_output else ()
        )
        criteria = tuple(
            Criterion(name=f"e{index}", text=text) for index, text in enumerate(expectations, 1)
        )
        cases.append(
            Case(
                id=as_id(f"eval-{item.id or number}"),
                input=item.prompt,
                expect="answer",
                graders=(Judge(criteria=criteria, shows="calls"),) if criteria else (),
                tags=(skill_evals.skill_name,),
            )
        )
    return ImportedSuite(suite=Suite(name=name, cases=tuple(cases)))


def write_skill_evals(suite: Suite) -> tuple[bytes, list[str]]:
    """The file, and notes on the parts of the suite that have no counterpart."""
    notes: list[str] = []
    evals: list[dict[str, object]] = []
    for number, case in enumerate(suite.cases, 1):
        judges = [item for item in suite.graders_of(case) if isinstance(item, Judge)]
        if len(judges) < len(suite.graders_of(case)):
            notes.append(f"case {case.id}: only the criteria of its judges were written")
        texts = [criterion.text for judge in judges for criterion in criteria_of(judge)]
        evals.append(
            {
                "id": number,
                "prompt": "\n\n".join(case.messages),
                "expected_output": case.gold or "",
                "files": sorted(case.files),
                "expectations": texts,
            }
        )
    content = {"skill_name": suite.name, "evals": evals}
    return _pretty(content), notes


def benchmark_files(run: EvalRun, baseline: EvalRun | None, skill: str) -> dict[str, bytes]:
    """`benchmark.json`, and `eval-N/CONFIGURATION/run-K/grading.json` for each trial. `baseline` is
    the same suite without the skill."""
    numbers = {name: number for number, name in enumerate(run.created.cases, 1)}
    configurations = {WITH: run} | ({} if baseline is None else {WITHOUT: baseline})
    files: dict[str, bytes] = {}
    runs: list[dict[str, object]] = []
    for name, source in configurations.items():
        for item in judged_results(source):
            if item.case_id in numbers:
                number = numbers[item.case_id]
                place = PurePosixPath(f"eval-{number}", name, f"run-{item.trial}", "grading.json")
                files[str(place)] = _pretty(_grading(item))
                runs.append(_benchmark_run(item, number, name))
    content = {
        "metadata": {
            "skill_name": skill,
            "skill_path": "",
            "executor_model": run.created.model,
            "analyzer_model": "",
            "timestamp": run.started.isoformat(),
            "evals_run": sorted(numbers.values()),
            "runs_per_configuration": run.created.trials,
        },
        "runs": runs,
        "run_summary": _summary(
            {name: judged_results(source) for name, source in configurations.items()}
        ),
        "notes": [],
    }
    return {"benchmark.json": _pretty(content), **files}


def judged_results(run: EvalRun) -> list[EvalCaseEnded]:
    """The trials with a verdict."""
    return [item for item in run.sorted_results if item.outcome != "error"]


class Expectation(Struct, frozen=True):
    text: str
    passed: bool
    evidence: str


class GradingSummary(Struct, frozen=True):
    passed: int
    failed: int
    total: int
    pass_rate: float


def _expectations(item: EvalCaseEnded) -> list[Expectation]:
    checks = [
        Expectation(f"{grade.grader}: {check.name}", check.passed, check.detail)
        for grade in item.grades
        for check in grade.checks
    ]
    return checks or [Expectation(item.case_id, item.outcome == "passed", item.error or "")]


def _grading_summary(ended: EvalCaseEnded) -> GradingSummary:
    expectations = _expectations(ended)
    passed, total = sum(item.passed for item in expectations), len(expectations)
    return GradingSummary(passed, total - passed, total, round(passed / total, 4))


def _grading(item: EvalCaseEnded) -> dict[str, object]:
    return {
        "expectations": _expectations(item),
        "summary": _grading_summary(item),
        "execution_metrics": {
            "total_tool_calls": item.tool_calls,
            "total_steps": item.turns,
            "errors_encountered": item.failed_calls,
        },
        "timing": {
            "executor_duration_seconds": item.seconds,
            "total_duration_seconds": item.seconds,
        },
    }


def _benchmark_run(item: EvalCaseEnded, number: int, configuration: str) -> dict[str, object]:
    result: dict[str, object] = {
        **msgspec.structs.asdict(_grading_summary(item)),
        "time_seconds": item.seconds,
        "tokens": item.usage.input_tokens + item.usage.output_tokens,
        "tool_calls": item.tool_calls,
        "errors": item.failed_calls,
    }
    return {
        "eval_id": number,
        "eval_name": item.case_id,
        "configuration": configuration,
        "run_number": item.trial,
        "result": result,
        "expectations": _expectations(item),
        "notes": [],
    }


def _summary(runs: Mapping[str, Sequence[EvalCaseEnded]]) -> dict[str, object]:
    values = {
        name: {
            "pass_rate": [_grading_summary(item).pass_rate for item in items],
            "time_seconds": [item.seconds for item in items],
            "tokens": [float(item.usage.input_tokens + item.usage.output_tokens) for item in items],
        }
        for name, items in runs.items()
    }
    summary: dict[str, object] = {
        name: {metric: _statistics(numbers) for metric, numbers in metrics.items()}
        for name, metrics in values.items()
    }
    if WITHOUT in values:
        formats = {"pass_rate": "+.2f", "time_seconds": "+.1f", "tokens": "+.0f"}
        summary["delta"] = {
            metric: format(fmean(values[WITH][metric]) - fmean(values[WITHOUT][metric]), form)
            for metric, form in formats.items()
        }
    return summary


def _statistics(numbers: Sequence[float]) -> dict[str, float]:
    values = list(numbers) or [0.0]
    return {
        "mean": round(fmean(values), 4),
        "stddev": round(stdev(values), 4) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def _pretty(content: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
