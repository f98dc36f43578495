"""The graders that a suite can name, as data. How each one judges is in `answer_checks.py`,
`trajectory_checks.py`, `workspace_checks.py` and `judges.py`.

A grader is a constraint, which fails a case by itself, unless it has a `weight`: then it is an
incentive, and its score counts towards the reward of a case whose constraints hold.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

Texts: TypeAlias = str | tuple[str, ...]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Measured: TypeAlias = Literal[
    "turns", "tool_calls", "failed_calls", "seconds", "cost_usd", "output_tokens", "answer_chars"
]


class _Grader(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str | None = None
    """For reports; the type by default."""
    weight: Annotated[float, Meta(gt=0)] | None = None


class Contains(_Grader, frozen=True, kw_only=True, tag_field="type", tag="contains"):
    text: Texts
    any: bool = False
    """One of the texts is enough."""
    ignore_case: bool = False


class NotContains(_Grader, frozen=True, kw_only=True, tag_field="type", tag="not_contains"):
    text: Texts
    ignore_case: bool = False


class Equals(_Grader, frozen=True, kw_only=True, tag_field="type", tag="equals"):
    """The whole answer, without spaces at its ends; the case's `gold` if no text is given."""

    text: str | None = None
    ignore_case: bool = False


class Regex(_Grader, frozen=True, kw_only=True, tag_field="type", tag="regex"):
    pattern: Texts
    absent: bool = False
    """None of the patterns may be there."""


class Schema(_Grader, frozen=True, kw_only=True, tag_field="type", tag="schema"):
    """The answer, or the only JSON block in it, is JSON of this schema."""

    schema: dict[str, object]


class Bounds(_Grader, frozen=True, kw_only=True, tag_field="type", tag="bounds"):
    max_turns: Count | None = None
    max_tool_calls: Count | None = None
    max_failed_calls: Count | None = None
    max_seconds: Amount | None = None
    max_cost_usd: Amount | None = None
    max_output_tokens: Count | None = None
    max_answer_chars: Count | None = None
    min_answer_chars: Count | None = None


class Measure(_Grader, frozen=True, kw_only=True, tag_field="type", tag="measure"):
    """An incentive for each unit of a measured value: 1 at `best`, 0 at `worst`."""

    value: Measured
    best: float = 0.0
    worst: float


class NoPromptLeak(_Grader, frozen=True, kw_only=True, tag_field="type", tag="no_prompt_leak"):
    words: Annotated[int, Meta(ge=4)] = 10
    """How many consecutive words of the instructions are a leak."""


class Citations(_Grader, frozen=True, kw_only=True, tag_field="type", tag="citations"):
    """URLs in the answer."""

    min: Count = 1
    fetched: bool = True
    """Each was fetched in this session."""
    label_single_source: bool = False
    """An answer with one source says so."""


class FileCheck(_Grader, frozen=True, kw_only=True, tag_field="type", tag="file"):
    path: str
    exists: bool = True
    contains: Texts = ()
    not_contains: Texts = ()
    equals: str | None = None
    pattern: str | None = None
    schema: dict[str, object] | None = None
    unchanged: bool = False
    """It is byte for byte what the case put there."""


class CommandCheck(_Grader, frozen=True, kw_only=True, tag_field="type", tag="command"):
    """A program in a fresh sandbox, over a copy of the workspace. What it prints is judged
    outside, so the right answers need not be in the agent's reach."""

    run: Texts
    """A list of arguments, or a text for the shell."""
    tests: str | None = None
    """A folder beside the suite, laid over the copy: hidden tests."""
    take: tuple[str, ...] = ()
    """Globs of the agent's files that the copy gets; the rest is as the case brought it. All by
    default."""
    stdin: str = ""
    status: int | None = 0
    stdout: str | None = None
    """All of it, without spaces at its ends."""
    stdout_json: object = None
    """The value that it prints; tests with many right answers compare here."""
    contains: Texts = ()
    not_contains: Texts = ()
    pattern: str | None = None
    timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 60.0


class CallPattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: str
    input: dict[str, object] = {}
    """Fields that the call has; texts may be patterns between slashes: `/^rm /`."""


class Trajectory(_Grader, frozen=True, kw_only=True, tag_field="type", tag="trajectory"):
    """What the log says the agent did; a call that a gate stopped did not run."""

    used: tuple[str | CallPattern, ...] = ()
    not_used: tuple[str | CallPattern, ...] = ()
    """These did not run."""
    not_tried: tuple[str | CallPattern, ...] = ()
    """The model did not even ask for these."""
    order: tuple[str | CallPattern, ...] = ()
    """These ran, in this order, perhaps with others between them."""
    asked_before: tuple[str | CallPattern, ...] = ()
    """Each that ran was approved by a person first."""
    denied: tuple[str | CallPattern, ...] = ()
    """A gate stopped these."""
    skills: tuple[str, ...] = ()
    no_effects: bool = False
    """Nothing ran that changes anything."""
    no_network: bool = False
    in_context: Texts = ()
    """The last model request had these words, also after a compaction."""
    ended: Texts = ()
    """One of these reasons ended the session."""


class Retrieval(_Grader, frozen=True, kw_only=True, tag_field="type", tag="retrieval"):
    """Which files and pages the agent read, in this order, apart from what it answered."""

    relevant: tuple[str, ...]
    k: Annotated[int, Meta(ge=1)] = 10
    min_recall: Share | None = None
    min_precision: Share | None = None
    min_mrr: Share | None = None


class Similarity(_Grader, frozen=True, kw_only=True, tag_field="type", tag="similarity"):
    """How near the answer is to a text, or to the case's `gold`."""

    text: str | None = None
    method: Literal["rouge_l", "words"] = "rouge_l"
    min: Share = 0.5


class Level(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    score: Share
    criterion: str
    """When the answer has this level."""


class Criterion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    text: str
    levels: tuple[Level, ...] = ()
    """Without any: met or not met."""


class Judge(_Grader, frozen=True, kw_only=True, tag_field="type", tag="judge"):
    """A model judges each criterion in a context of its own, and gives its reason first."""

    criteria: tuple[Criterion, ...] = ()
    ready: Literal["faithfulness", "answer_relevance"] | None = None
    """A rubric that comes with Mainspring, instead of `criteria`."""
    model: str | None = None
    """Pin one of another family than the agent's; the agent's own by default."""
    min: Share = 1.0
    """The least mean over the criteria."""
    shows: Literal["answer", "calls"] = "answer"
    """`calls`: the judge also sees which calls ran and what they returned."""


class Pairwise(_Grader, frozen=True, kw_only=True, tag_field="type", tag="pairwise"):
    """Whether the answer is at least as good as `gold`: asked in both orders, and counted only if
    both agree. Once the judge is calibrated, what it gives for length alone is taken off."""

    question: str = "Which answer is better?"
    model: str | None = None
    rounds: Annotated[int, Meta(ge=1, le=9)] = 3
    """Of two requests each. With one round, length cannot be controlled."""


Grader: TypeAlias = (
    Contains
    | NotContains
    | Equals
    | Regex
    | Schema
    | Bounds
    | Measure
    | NoPromptLeak
    | Citations
    | FileCheck
    | CommandCheck
    | Trajectory
    | Retrieval
    | Similarity
    | Judge
    | Pairwise
)
"""Cheapest first: this is also the order in which they run."""


def grader_name(grader: Grader) -> str:
    return grader.name or str(grader.__struct_config__.tag)


def as_texts(texts: Texts) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts
