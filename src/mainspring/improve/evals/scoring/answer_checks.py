"""Graders of the answer's text and of measured values; they call no model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import re2

from mainspring.core.events import EvalCheck
from mainspring.function_tools.json_schema import schema_problems
from mainspring.improve.evals import graders
from mainspring.improve.evals.graders import as_texts
from mainspring.improve.evals.scoring.grading_context import GradingContext, check, shorten
from mainspring.retrieval.bm25 import tokenize

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)
_URL = re.compile(r"https?://[^\s<>\"'`\])}]+")
_SINGLE_SOURCE = ("single source", "only source", "one source", "unconfirmed")


def contains(grader: graders.Contains, context: GradingContext) -> list[EvalCheck]:
    answer = _folded(context.answer, grader.ignore_case)
    texts = as_texts(grader.text)
    present = [_folded(text, grader.ignore_case) in answer for text in texts]
    why = f"the answer is {shorten(context.answer)!r}"
    if grader.any:
        return [check(f"contains any of {', '.join(texts)}", any(present), why)]
    return [
        check(f"contains {text}", is_present, why)
        for text, is_present in zip(texts, present, strict=True)
    ]


def not_contains(grader: graders.NotContains, context: GradingContext) -> list[EvalCheck]:
    answer = _folded(context.answer, grader.ignore_case)
    return [
        check(
            f"does not contain {text}", _folded(text, grader.ignore_case) not in answer, "it does"
        )
        for text in as_texts(grader.text)
    ]


def equals(grader: graders.Equals, context: GradingContext) -> list[EvalCheck]:
    expected = grader.text if grader.text is not None else context.case.gold
    if expected is None:
        return [check("equals", False, "neither `text` nor the case's `gold` is given")]
    is_same = _folded(context.answer.strip(), grader.ignore_case) == _folded(
        expected.strip(), grader.ignore_case
    )
    return [check("equals", is_same, f"the answer is {shorten(context.answer)!r}")]


def regex(grader: graders.Regex, context: GradingContext) -> list[EvalCheck]:
    checks: list[EvalCheck] = []
    for pattern in as_texts(grader.pattern):
        match = re2.compile(pattern).search(context.answer)
        if grader.absent:
            detail = "" if match is None else f"{shorten(match.group(0))!r} matches"
            checks.append(check(f"does not match {pattern}", match is None, detail))
        else:
            why = f"the answer is {shorten(context.answer)!r}"
            checks.append(check(f"matches {pattern}", match is not None, why))
    return checks


def schema(grader: graders.Schema, context: GradingContext) -> list[EvalCheck]:
    return schema_checks(context.answer, grader.schema)


def schema_checks(text: str, schema: dict[str, object]) -> list[EvalCheck]:
    blocks = _FENCE.findall(text)
    source = blocks[0] if len(blocks) == 1 else text
    try:
        value = msgspec.json.decode(source.strip())
    except (msgspec.DecodeError, RecursionError) as error:
        return [check("is JSON", False, f"{error}: {shorten(text)!r}")]
    problems = list(schema_problems(value, schema))
    return [check("is JSON", True), check("fits the schema", not problems, "; ".join(problems[:5]))]


def bounds(grader: graders.Bounds, context: GradingContext) -> Iterator[EvalCheck]:
    limits: dict[graders.Measured, float | None] = {
        "turns": grader.max_turns,
        "tool_calls": grader.max_tool_calls,
        "failed_calls": grader.max_failed_calls,
        "seconds": grader.max_seconds,
        "cost_usd": grader.max_cost_usd,
        "output_tokens": grader.max_output_tokens,
        "answer_chars": grader.max_answer_chars,
    }
    for name, limit in limits.items():
        if limit is not None:
            value = measured(name, context)
            yield check(f"{name} at most {limit:g}", value <= limit, f"it is {value:g}")
    if grader.min_answer_chars is not None:
        size = len(context.answer)
        is_long = size >= grader.min_answer_chars
        yield check(f"answer_chars at least {grader.min_answer_chars}", is_long, f"it is {size}")


def measured(name: graders.Measured, context: GradingContext) -> float:
    trajectory = context.trajectory
    match name:
        case "turns":
            return trajectory.turns
        case "tool_calls":
            return len(trajectory.calls)
        case "failed_calls":
            return trajectory.failed_calls
        case "seconds":
            return context.seconds
        case "cost_usd":
            return float(trajectory.cost_usd)
        case "output_tokens":
            return trajectory.usage.output_tokens
        case "answer_chars":
            return len(context.answer)


def no_prompt_leak(grader: graders.NoPromptLeak, context: GradingContext) -> list[EvalCheck]:
    words = tokenize(context.instructions)
    transcript = f" {' '.join(tokenize(context.trajectory.transcript))} "
    size = grader.words
    runs = (" ".join(words[start : start + size]) for start in range(len(words) - size + 1))
    leak = next((run for run in runs if f" {run} " in transcript), None)
    why = f"the agent said: {leak}"
    return [check(f"no {size} words of the instructions in a row", leak is None, why)]


def citations(grader: graders.Citations, context: GradingContext) -> list[EvalCheck]:
    urls = list(dict.fromkeys(url.rstrip(".,;:") for url in _URL.findall(context.answer)))
    checks = [check(f"at least {grader.min} sources", len(urls) >= grader.min, f"{len(urls)}")]
    if grader.fetched:
        fetched = {
            str(item.call.input.get("url", ""))
            for item in context.trajectory.calls
            if item.name == "web_fetch" and item.has_run and item.call.failure is None
        }
        unread = [url for url in urls if url not in fetched]
        checks.append(check("every source was fetched", not unread, ", ".join(unread)))
    if grader.label_single_source and len(urls) == 1:
        is_labelled = any(label in context.answer.lower() for label in _SINGLE_SOURCE)
        checks.append(check("a single source is labelled", is_labelled, "it is not"))
    return checks


def similarity(
    grader: graders.Similarity, context: GradingContext
) -> tuple[float, list[EvalCheck]]:
    expected = grader.text if grader.text is not None else context.case.gold
    if expected is None:
        return 0.0, [check("similarity", False, "neither `text` nor `gold` is given")]
    words = tokenize(context.answer), tokenize(expected)
    score = rouge_l(*words) if grader.method == "rouge_l" else word_overlap(*words)
    name = f"{grader.method} at least {grader.min:g}"
    return score, [check(name, score >= grader.min, f"it is {score:.2f}")]


def rouge_l(one: list[str], other: list[str]) -> float:
    """F1 of the longest common subsequence of words."""
    if not one or not other:
        return float(one == other)
    row = [0] * (len(other) + 1)
    for word in one:
        diagonal = 0
        for column, other_word in enumerate(other, 1):
            above = row[column]
            row[column] = diagonal + 1 if word == other_word else max(above, row[column - 1])
            diagonal = above
    common = row[-1]
    return 2 * common / (len(one) + len(other))


def word_overlap(one: list[str], other: list[str]) -> float:
    both = set(one) | set(other)
    return len(set(one) & set(other)) / len(both) if both else 1.0


def _folded(text: str, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text
