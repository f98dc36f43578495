"""Reads and writes promptfoo's YAML: `tests` with `assert`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import msgspec
import re2
import yaml
from msgspec import Struct, field

from mainspring.improve.evals import graders
from mainspring.improve.evals.exchange.imported_suite import ImportedSuite, as_id
from mainspring.improve.evals.graders import Criterion, Grader, Judge, as_texts, grader_name
from mainspring.improve.evals.scoring.judges import criteria_of
from mainspring.improve.evals.suite import Case, Suite

_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class _Assertion(Struct, frozen=True):
    type: str
    value: object = None
    threshold: float | None = None


class _Test(Struct, frozen=True):
    description: str = ""
    variables: dict[str, object] = field(default_factory=dict[str, object], name="vars")
    assertions: tuple[_Assertion, ...] = field(default=(), name="assert")


class _Prompt(Struct, frozen=True):
    raw: str


class _Promptfoo(Struct, frozen=True):
    tests: tuple[_Test, ...]
    prompts: str | tuple[str | _Prompt, ...] = ("{{input}}",)
    default: _Test = field(default=_Test(), name="defaultTest")

    @property
    def texts(self) -> tuple[str, ...]:
        prompts = (self.prompts,) if isinstance(self.prompts, str) else self.prompts
        return tuple(item if isinstance(item, str) else item.raw for item in prompts)


def read_promptfoo(tree: object, name: str) -> ImportedSuite:
    """Raises: msgspec.ValidationError: it is not a promptfoo configuration."""
    config, notes = msgspec.convert(tree, _Promptfoo), list(_dropped(tree))
    cases: list[Case] = []
    for number, test in enumerate(config.tests, 1):
        asserts = (*config.default.assertions, *test.assertions)
        graders = [_assertion(item, f"test {number}", notes) for item in asserts]
        label = test.description or f"test-{number}"
        for index, prompt in enumerate(config.texts, 1):
            cases.append(
                Case(
                    id=as_id(label if len(config.texts) == 1 else f"{label}-{index}"),
                    input=_fill(prompt, {**config.default.variables, **test.variables}),
                    expect="answer",
                    graders=tuple(item for item in graders if item is not None),
                )
            )
    return ImportedSuite(suite=Suite(name=name, cases=tuple(cases)), notes=notes)


_READ = {
    "the file": {"description", "prompts", "providers", "tests", "defaultTest"},
    "test": {"description", "vars", "assert", "metadata"},
    "assertion": {"type", "value", "threshold"},
}
"""The fields that count, or that say nothing about the suite."""


def _dropped(tree: object) -> Iterator[str]:
    """The fields that are not read."""
    config = _fields(tree)
    yield from _others(config, "the file", "the file")
    tests = [("defaultTest", _fields(config.get("defaultTest")))]
    tests += [(f"test {n}", _fields(item)) for n, item in enumerate(_items(config.get("tests")), 1)]
    for place, test in tests:
        yield from _others(test, "test", place)
        for item in _items(test.get("assert")):
            assertion = _fields(item)
            kind = f"{place}: the assertion {assertion.get('type')}"
            yield from _others(assertion, "assertion", kind)
            if "threshold" in assertion and assertion.get("type") not in _WITH_THRESHOLD:
                yield f"{kind}: its threshold was left out"


def _others(fields: Mapping[str, object], kind: str, place: str) -> Iterator[str]:
    if names := sorted(fields.keys() - _READ[kind]):
        yield f"{place}: {', '.join(names)} was left out"


def _fields(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _items(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def _fill(prompt: str, variables: Mapping[str, object]) -> str:
    return _VARIABLE.sub(lambda match: str(variables.get(match[1], match[0])), prompt)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, dict):  # a tool assertion has `name`, or `steps` in their order
        fields = cast("Mapping[str, object]", value)
        value = fields.get("steps", fields.get("name", ()))
    if isinstance(value, str):
        return (value,)
    is_list = isinstance(value, list)
    return tuple(map(str, cast("Sequence[object]", value))) if is_list else ()


_ASSERTIONS: dict[str, Callable[[object], Grader]] = {
    "equals": lambda value: graders.Equals(text=str(value)),
    "contains": lambda value: graders.Contains(text=str(value)),
    "icontains": lambda value: graders.Contains(text=str(value), ignore_case=True),
    "contains-all": lambda value: graders.Contains(text=_texts(value)),
    "contains-any": lambda value: graders.Contains(text=_texts(value), any=True),
    "icontains-all": lambda value: graders.Contains(text=_texts(value), ignore_case=True),
    "icontains-any": lambda value: graders.Contains(text=_texts(value), any=True, ignore_case=True),
    "starts-with": lambda value: graders.Regex(pattern=f"\\A{re2.escape(str(value))}"),
    "not-starts-with": lambda value: graders.Regex(
        pattern=f"\\A{re2.escape(str(value))}", absent=True
    ),
    "not-contains": lambda value: graders.NotContains(text=str(value)),
    "not-icontains": lambda value: graders.NotContains(text=str(value), ignore_case=True),
    "regex": lambda value: graders.Regex(pattern=str(value)),
    "not-regex": lambda value: graders.Regex(pattern=str(value), absent=True),
    "is-json": lambda value: graders.Schema(schema=cast("dict[str, object]", value or {})),
    "trajectory:tool-used": lambda value: graders.Trajectory(used=_texts(value)),
    "trajectory:tool-sequence": lambda value: graders.Trajectory(order=_texts(value)),
    "skill-used": lambda value: graders.Trajectory(skills=_texts(value)),
}


def _similarity(value: object, threshold: float | None) -> Grader:
    return graders.Similarity(text=str(value), min=0.75 if threshold is None else threshold)


def _rubric(value: object, threshold: float | None) -> Grader:
    criterion = Criterion(name="rubric", text=str(value))
    return Judge(criteria=(criterion,), min=1.0 if threshold is None else threshold)


_WITH_THRESHOLD: dict[str, Callable[[object, float | None], Grader]] = {
    "latency": lambda _, most: graders.Bounds(max_seconds=(most or 0.0) / 1000),
    "cost": lambda _, most: graders.Bounds(max_cost_usd=most or 0.0),
    "rouge-n": _similarity,
    "similar": _similarity,
    "llm-rubric": _rubric,
    "answer-relevance": lambda _, least: Judge(
        ready="answer_relevance", min=1.0 if least is None else least
    ),
    "context-faithfulness": lambda _, least: Judge(
        ready="faithfulness", min=1.0 if least is None else least
    ),
}
"""Promptfoo's own default for similarity is 0.75."""


def _assertion(item: _Assertion, place: str, notes: list[str]) -> Grader | None:
    match item.type:
        case kind if kind in _WITH_THRESHOLD:
            if kind == "similar":
                notes.append(f"{place}: the assertion similar compares words here, not embeddings")
            return _WITH_THRESHOLD[kind](item.value, item.threshold)
        case kind if kind in _ASSERTIONS:
            return _ASSERTIONS[kind](item.value)
        case kind:
            notes.append(f"{place}: the assertion {kind} has no counterpart and was left out")
            return None


def write_promptfoo(suite: Suite) -> tuple[bytes, list[str]]:
    """The file, and notes on the parts of the suite that have no counterpart."""
    notes: list[str] = []
    tests = [_test(suite, case, notes) for case in suite.cases]
    config = {
        "description": suite.description or suite.name,
        "prompts": ["{{input}}"],
        "providers": ["echo"],
        "tests": tests,
    }
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
    return text.encode(), notes


def _test(suite: Suite, case: Case, notes: list[str]) -> dict[str, object]:
    asserts: list[dict[str, object]] = []
    for grader in suite.graders_of(case):
        assertions = list(_assertions(grader, case))
        if not assertions:
            name = grader_name(grader)
            notes.append(f"case {case.id}: the grader {name} has no counterpart and was left out")
        weight = {} if grader.weight is None else {"weight": grader.weight}
        asserts += [{**item, **weight} for item in assertions]
    if len(case.messages) > 1:
        notes.append(f"case {case.id}: only the last of its messages was written")
    return {
        "description": case.id,
        "vars": {"input": "\n\n".join(case.messages[-1:])},
        "assert": asserts,
        "metadata": {"tags": list(case.tags)},
    }


def _assertions(grader: Grader, case: Case) -> Iterator[Mapping[str, object]]:
    match grader:
        case graders.Contains(text=texts, any=is_any, ignore_case=ignores):
            kind = f"{'i' if ignores else ''}contains-{'any' if is_any else 'all'}"
            yield {"type": kind, "value": list(as_texts(texts))}
        case graders.NotContains(text=texts, ignore_case=ignores):
            kind = "not-icontains" if ignores else "not-contains"
            yield from ({"type": kind, "value": text} for text in as_texts(texts))
        case graders.Equals(text=text, ignore_case=False):
            yield {"type": "equals", "value": text if text is not None else case.gold or ""}
        case graders.Regex(pattern=patterns, absent=is_absent):
            kind = "not-regex" if is_absent else "regex"
            yield from ({"type": kind, "value": pattern} for pattern in as_texts(patterns))
        case graders.Schema(schema=schema):
            yield {"type": "is-json", "value": schema}
        case Judge():
            rubrics = (item.text for item in criteria_of(grader))
            yield from ({"type": "llm-rubric", "value": text} for text in rubrics)
        case _:
            yield from _measure_assertions(grader)


def _measure_assertions(grader: Grader) -> Iterator[Mapping[str, object]]:
    match grader:
        case graders.Bounds(max_seconds=seconds, max_cost_usd=cost):
            if seconds is not None:
                yield {"type": "latency", "threshold": seconds * 1000}
            if cost is not None:
                yield {"type": "cost", "threshold": cost}
        case graders.Trajectory(used=used, order=order, skills=skills):
            names = [item if isinstance(item, str) else item.tool for item in used]
            yield from ({"type": "trajectory:tool-used", "value": name} for name in names)
            if order:
                steps = [item if isinstance(item, str) else item.tool for item in order]
                yield {"type": "trajectory:tool-sequence", "value": {"steps": steps}}
            yield from ({"type": "skill-used", "value": name} for name in skills)
        case _:
            return
