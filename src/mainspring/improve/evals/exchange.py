"""Suites and results in the formats of other tools: promptfoo's YAML and skill-creator's
`evals.json` are read; Inspect's EvalLog (version 2) is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import yaml
from msgspec import Struct, field

from mainspring.core.errors import InvalidInput
from mainspring.core.events import EvalCaseEnded, Usage
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evals import graders
from mainspring.improve.evals.comparison import case_results, summarize
from mainspring.improve.evals.graders import Criterion, Grader, Judge
from mainspring.improve.evals.run_log import EvalRun
from mainspring.improve.evals.suite import Case, Suite

_MAX_BYTES = 50_000_000
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class _Assertion(Struct, frozen=True):
    type: str
    value: object = None
    threshold: float = 0.0


class _Test(Struct, frozen=True):
    description: str = ""
    variables: dict[str, object] = field(default_factory=dict[str, object], name="vars")
    assertions: tuple[_Assertion, ...] = field(default=(), name="assert")


class _Promptfoo(Struct, frozen=True):
    tests: tuple[_Test, ...]
    prompts: tuple[str, ...] = ("{{input}}",)


class _SkillEval(Struct, frozen=True):
    prompt: str
    id: int | str = ""
    expected_output: str = ""
    expectations: tuple[str, ...] = ()


class _SkillEvals(Struct, frozen=True):
    evals: tuple[_SkillEval, ...]
    skill_name: str = "skill"


def read_foreign_suite(file: Path) -> tuple[Suite, list[str]]:
    """The suite, and what of the file has no counterpart.

    Raises: InvalidInput: it is of neither format.
    """
    content = read_bounded(file, max_bytes=_MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{file}: there is no such file")
    notes: list[str] = []
    try:
        tree: object = yaml.safe_load(content)  # JSON is YAML
        names = set(cast("dict[str, object]", tree)) if isinstance(tree, dict) else set[str]()
        if "evals" in names:
            return _skill_creator(msgspec.convert(tree, _SkillEvals), _id(file.stem)), notes
        if "tests" in names:
            return _promptfoo(msgspec.convert(tree, _Promptfoo), _id(file.stem), notes), notes
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise InvalidInput(f"{file}: {error}") from error
    raise InvalidInput(f"{file}: neither promptfoo's `tests` nor skill-creator's `evals`")


def _skill_creator(foreign: _SkillEvals, name: str) -> Suite:
    cases: list[Case] = []
    for number, item in enumerate(foreign.evals, 1):
        wanted = item.expectations or ((item.expected_output,) if item.expected_output else ())
        criteria = tuple(Criterion(name=f"e{at}", text=text) for at, text in enumerate(wanted, 1))
        cases.append(
            Case(
                id=_id(f"eval-{item.id or number}"),
                input=item.prompt,
                expect="answer",
                graders=(Judge(criteria=criteria, shows="calls"),) if criteria else (),
                tags=(foreign.skill_name,),
            )
        )
    return Suite(name=name, cases=tuple(cases))


def _promptfoo(foreign: _Promptfoo, name: str, notes: list[str]) -> Suite:
    cases: list[Case] = []
    for number, test in enumerate(foreign.tests, 1):
        made = [_assertion(item, f"test {number}", notes) for item in test.assertions]
        label = test.description or f"test-{number}"
        for at, prompt in enumerate(foreign.prompts, 1):
            cases.append(
                Case(
                    id=_id(label if len(foreign.prompts) == 1 else f"{label}-{at}"),
                    input=_filled(prompt, test.variables),
                    expect="answer",
                    graders=tuple(item for item in made if item is not None),
                )
            )
    return Suite(name=name, cases=tuple(cases))


def _filled(prompt: str, variables: Mapping[str, object]) -> str:
    return _VARIABLE.sub(lambda match: str(variables.get(match[1], match[0])), prompt)


def _texts(value: object) -> tuple[str, ...]:
    is_list = isinstance(value, list)
    return tuple(map(str, cast("Sequence[object]", value))) if is_list else (str(value),)


_ASSERTIONS: dict[str, Callable[[object], Grader]] = {
    "equals": lambda value: graders.Equals(text=str(value)),
    "contains": lambda value: graders.Contains(text=str(value)),
    "icontains": lambda value: graders.Contains(text=str(value), ignore_case=True),
    "contains-all": lambda value: graders.Contains(text=_texts(value)),
    "contains-any": lambda value: graders.Contains(text=_texts(value), any=True),
    "not-contains": lambda value: graders.NotContains(text=str(value)),
    "not-icontains": lambda value: graders.NotContains(text=str(value), ignore_case=True),
    "regex": lambda value: graders.Regex(pattern=str(value)),
    "not-regex": lambda value: graders.Regex(pattern=str(value), absent=True),
    "is-json": lambda value: graders.Schema(schema=cast("dict[str, object]", value or {})),
    "rouge-n": lambda value: graders.Similarity(text=str(value)),
    "llm-rubric": lambda value: Judge(criteria=(Criterion(name="rubric", text=str(value)),)),
    "answer-relevance": lambda _: Judge(ready="answer_relevance"),
    "context-faithfulness": lambda _: Judge(ready="faithfulness"),
    "trajectory:tool-used": lambda value: graders.Trajectory(used=_texts(value)),
    "trajectory:tool-sequence": lambda value: graders.Trajectory(order=_texts(value)),
    "skill-used": lambda value: graders.Trajectory(skills=_texts(value)),
}


def _assertion(item: _Assertion, place: str, notes: list[str]) -> Grader | None:
    match item.type:
        case "latency":
            return graders.Bounds(max_seconds=item.threshold / 1000)
        case "cost":
            return graders.Bounds(max_cost_usd=item.threshold)
        case kind if kind in _ASSERTIONS:
            return _ASSERTIONS[kind](item.value)
        case kind:
            notes.append(f"{place}: the assertion {kind} has no counterpart and was left out")
            return None


def _id(text: str) -> str:
    return _NAME.sub("-", text).strip("-._")[:80] or "case"


def inspect_log(run: EvalRun, inputs: Mapping[str, str], answers: Mapping[str, str]) -> bytes:
    """The run as Inspect's EvalLog, version 2. `inputs` by case, `answers` by session."""
    created, results = run.created, [run.results[key] for key in sorted(run.results)]
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
    asked, answer = inputs.get(item.case_id, ""), answers.get(item.session_id, "")
    message = {"role": "assistant", "content": answer, "source": "generate", "model": model}
    checks = [
        f"{grade.grader}: {check.name}: {'yes' if check.passed else f'no ({check.detail})'}"
        for grade in item.grades
        for check in grade.checks
    ]
    return {
        "id": item.case_id,
        "epoch": item.trial,
        "uuid": item.session_id,
        "input": asked,
        "target": "",
        "messages": [{"role": "user", "content": asked, "source": "input"}, message],
        "output": {
            "model": model,
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": _usage(item.usage),
            "time": item.seconds,
        },
        "scores": {
            scorer: {
                "value": "C" if item.outcome == "passed" else "I",
                "answer": answer,
                "explanation": "\n".join([*([item.error] if item.error else []), *checks]),
                "metadata": {"reward": item.score, "cost_usd": item.cost_usd},
            }
        },
        "metadata": {"tags": list(item.tags), "session_id": item.session_id},
        "store": {},
        "events": [],
        "model_usage": {model: _usage(item.usage)},
        "total_time": item.seconds,
        "attachments": {},
    }


def _usage(usage: Usage) -> dict[str, int]:
    cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens + cached + written,
        "input_tokens_cache_write": written,
        "input_tokens_cache_read": cached,
    }
