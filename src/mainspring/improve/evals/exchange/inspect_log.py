"""Writes a run as Inspect's EvalLog, version 2, and reads one as a suite with results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

import msgspec
from msgspec import Struct

from mainspring.core.events import EvalCaseEnded, Usage
from mainspring.improve.evals import graders
from mainspring.improve.evals.exchange.imported_suite import ImportedSuite, as_id
from mainspring.improve.evals.gate.baseline import Baseline
from mainspring.improve.evals.gate.comparison import CaseResult, case_results, summarize
from mainspring.improve.evals.graders import Criterion, Grader, Judge
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.suite import Case, Suite

_VERSION = 2  # of the log's format
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def inspect_log(run: EvalRun, inputs: Mapping[str, str], answers: Mapping[str, str]) -> bytes:
    """The run as an EvalLog. `inputs` are by case, `answers` by session."""
    created, results = run.created, run.sorted_results
    summary = summarize(case_results(results))
    scorer = "mainspring"
    started = run.started.isoformat()
    log: dict[str, object] = {
        "version": 2,
        "status": "success" if run.ended is not None else "started",
        "eval": {
            "eval_id": run.id,
            "run_id": run.id,
            "created": started,
            "task": created.suite,
            "task_id": created.suite_hash[:22],
            "task_version": 0,
            "task_attribs": {},
            "task_args": {},
            "dataset": {"name": created.suite, "samples": len(created.cases)},
            "model": created.model,
            "model_args": {},
            "config": {"epochs": created.trials},
            "packages": {},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(created.cases) * created.trials,
            "completed_samples": len(results),
            "scores": [
                {
                    "name": scorer,
                    "scorer": scorer,
                    "params": {},
                    "metrics": {
                        "accuracy": {"name": "accuracy", "value": summary.pass_rate, "params": {}}
                    },
                }
            ],
        },
        "stats": {"started_at": started, "completed_at": started, "model_usage": {}},
        "samples": [_sample(item, created.model, scorer, inputs, answers) for item in results],
    }
    return msgspec.json.format(msgspec.json.encode(log), indent=1)


def _sample(
    item: EvalCaseEnded,
    model: str,
    scorer: str,
    inputs: Mapping[str, str],
    answers: Mapping[str, str],
) -> dict[str, object]:
    question, answer = inputs.get(item.case_id, ""), answers.get(item.session_id, "")
    message = {"role": "assistant", "content": answer, "source": "generate", "model": model}
    checks = [
        f"{grade.grader}: {check.name}: {'yes' if check.passed else f'no ({check.detail})'}"
        for grade in item.grades
        for check in grade.checks
    ]
    score = {
        "value": "C" if item.outcome == "passed" else "I",
        "answer": answer,
        "explanation": "\n".join([*([item.error] if item.error else []), *checks]),
        "metadata": {"reward": item.score, "cost_usd": item.cost_usd},
    }
    sample: dict[str, object] = {
        "id": item.case_id,
        "epoch": item.trial,
        "uuid": item.session_id,
        "input": question,
        "target": "",
        "messages": [{"role": "user", "content": question, "source": "input"}, message],
        "output": {
            "model": model,
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": _usage(item.usage),
            "time": item.seconds,
        },
        "scores": {} if item.outcome == "error" else {scorer: score},
        "metadata": {"tags": list(item.tags), "session_id": item.session_id},
        "store": {},
        "events": [],
        "model_usage": {model: _usage(item.usage)},
        "total_time": item.seconds,
        "attachments": {},
    }
    if item.outcome == "error":  # it has no verdict
        error = item.error or ""
        sample["error"] = {"message": error, "traceback": error, "traceback_ansi": error}
    return sample


def _usage(usage: Usage) -> dict[str, int]:
    cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens + cached + written,
        "input_tokens_cache_write": written,
        "input_tokens_cache_read": cached,
    }


class _Score(Struct, frozen=True):
    value: object = None


class _Sample(Struct, frozen=True):
    id: str | int
    input: object = ""
    target: str | tuple[str, ...] = ""
    epoch: int = 1
    scores: dict[str, _Score] | None = None


class _Eval(Struct, frozen=True):
    task: str
    model: str = ""
    created: datetime | None = None


class _Log(Struct, frozen=True):
    version: int
    eval: _Eval
    samples: tuple[_Sample, ...] | None = None


def read_inspect_log(tree: object, name: str, time: datetime) -> ImportedSuite:
    """Make cases of the samples, and a baseline of their scores.

    Raises: msgspec.ValidationError: it is not an EvalLog.
    """
    log = msgspec.convert(tree, _Log, strict=False)
    notes = [] if log.version == _VERSION else [f"version {log.version} was read as 2"]
    if not log.samples:
        raise msgspec.ValidationError("the log has no samples; it may have only a header")
    cases: dict[str, Case] = {}
    trials: dict[str, dict[int, float]] = {}
    for sample in log.samples:
        case_id = as_id(str(sample.id))
        scorer, score = next(iter((sample.scores or {}).items()), ("", None))
        if case_id not in cases:
            cases[case_id] = _case(case_id, sample, scorer, notes)
        if score is not None:
            trials.setdefault(case_id, {})[sample.epoch] = _grade(score.value)
    results = {
        case_id: CaseResult(trials=tuple(value for _, value in sorted(epochs.items())))
        for case_id, epochs in trials.items()
    }
    baseline = Baseline(
        suite=name,
        suite_hash="",
        model=log.eval.model,
        run_id="inspect",
        time=log.eval.created or time,
        cases=results,
        cost_usd="0",
    )
    suite = Suite(name=name, description=log.eval.task, cases=tuple(cases.values()))
    return ImportedSuite(suite=suite, notes=notes, baseline=baseline if results else None)


def _case(case_id: str, sample: _Sample, scorer: str, notes: list[str]) -> Case:
    target = sample.target if isinstance(sample.target, str) else "\n".join(sample.target)
    grader = _grader(scorer.rpartition("/")[2], target)
    if grader is None:
        notes.append(f"case {case_id}: the scorer {scorer or '(none)'} has no counterpart")
    return Case(
        id=case_id,
        input=_messages(sample.input),
        gold=target or None,
        expect="answer",
        graders=() if grader is None else (grader,),
    )


def _grader(scorer: str, target: str) -> Grader | None:
    match scorer:
        case "includes":
            return graders.Contains(text=target, ignore_case=True)
        case "exact":
            return graders.Equals(text=target, ignore_case=True)
        case "match":
            return graders.Regex(pattern=f"(?i){_escape(target)}\\W*$")
        case "pattern" | "answer":
            return graders.Contains(text=target)
        case kind if kind.startswith("model_graded"):
            text = f"The answer agrees with this one: {target}"
            return Judge(criteria=(Criterion(name="agrees", text=text),))
        case _:
            return None


def _escape(text: str) -> str:
    return "".join(char if char.isalnum() or char == " " else f"\\{char}" for char in text)


def _messages(value: object) -> str | tuple[str, ...]:
    """The user's messages, from a text or a conversation."""
    if isinstance(value, str):
        return value
    texts: list[str] = []
    for message in cast("Sequence[Mapping[str, object]]", value or ()):
        content = message.get("content", "")
        if message.get("role") == "user":
            texts.append(content if isinstance(content, str) else _text(content))
    return tuple(texts) or ("",)


def _text(parts: object) -> str:
    blocks = cast("Sequence[Mapping[str, object]]", parts)
    return "\n".join(str(part["text"]) for part in blocks if "text" in part)


def _grade(value: object) -> float:
    if isinstance(value, str):
        return _GRADES.get(value, 0.0)
    return min(1.0, max(0.0, float(value))) if isinstance(value, int | float) else 0.0
