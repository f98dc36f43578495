"""The graders that a suite can name, as data. `answer_checks.py`, `trajectory_checks.py`,
`workspace_checks.py` and `judges.py` run them.

A grader is a constraint, which fails a case by itself, unless it has a `weight`: then it is an
incentive, and its score counts towards the reward of a case whose constraints are met.
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
    """The name in reports; the type by default."""
    weight: Annotated[float, Meta(gt=0)] | None = None


class Contains(_Grader, frozen=True, kw_only=True, tag_field="type", tag="contains"):
    text: Texts
    any: bool = False
    """Whether one of the texts is enough."""
    ignore_case: bool = False


class NotContains(_Grader, frozen=True, kw_only=True, tag_field="type", tag="not_contains"):
    text: Texts
    ignore_case: bool = False


class Equals(_Grader, frozen=True, kw_only=True, tag_field="type", tag="equals"):
    """The whole answer, without surrounding whitespace, equals `text` or the case's `gold`."""

    text: str | None = None
    ignore_case: bool = False


class Regex(_Grader, frozen=True, kw_only=True, tag_field="type", tag="regex"):
    pattern: Texts
    absent: bool = False
    """Whether none of the patterns may match."""


class Schema(_Grader, frozen=True, kw_only=True, tag_field="type", tag="schema"):
    """The answer, or the only JSON block in it, fits this schema."""

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


class CallPattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: str
    input: dict[str, object] = {}
    """Fields that the call has; texts may be patterns between slashes: `/^rm /`."""


class NumberSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a number of the domain is: exactly one of the first four."""

    answer: bool = False
    file: str | None = None
    call: str | CallPattern | None = None
    """The last call like this that ran, and its input."""
    command: Texts | None = None
    """A program, as in the grader `command`; the number is in its output."""
    pattern: str | None = None
    """RE2: the number is its first group, or the whole match. By default, the text is the
    number."""
    field: str | None = None
    """The name of a value in JSON: `price`, or `offer.price`."""


class Measure(_Grader, frozen=True, kw_only=True, tag_field="type", tag="measure"):
    """An incentive for each unit of a measured value: 1 at `best`, 0 at `worst`. With `min` or
    `max` and without a weight, a limit of the value."""

    value: Measured | NumberSource
    best: float = 0.0
    worst: float | None = None
    min: float | None = None
    max: float | None = None


class NoPromptLeak(_Grader, frozen=True, kw_only=True, tag_field="type", tag="no_prompt_leak"):
    words: Annotated[int, Meta(ge=4)] = 10
    """The number of consecutive words of the instructions that count as a leak."""


class Citations(_Grader, frozen=True, kw_only=True, tag_field="type", tag="citations"):
    """Checks the URLs in the answer."""

    min: Count = 1
    fetched: bool = True
    """Whether each must have been fetched in this session."""
    label_single_source: bool = False
    """Whether an answer with a single source must say so."""


class FileCheck(_Grader, frozen=True, kw_only=True, tag_field="type", tag="file"):
    path: str
    exists: bool = True
    contains: Texts = ()
    not_contains: Texts = ()
    equals: str | None = None
    pattern: str | None = None
    schema: dict[str, object] | None = None
    unchanged: bool = False
    """Whether the file must be as the case created it."""


class CommandCheck(_Grader, frozen=True, kw_only=True, tag_field="type", tag="command"):
    """Runs a program in a fresh sandbox on a copy of the workspace. Its output is checked outside,
    so the agent cannot read the right answers."""

    run: Texts
    """A list of arguments, or a text for the shell."""
    tests: str | None = None
    """A folder beside the suite that is copied over it: hidden tests."""
    take: tuple[str, ...] = ()
    """Globs of the agent's files that are copied, all by default; other files are the case's
    own."""
    stdin: str = ""
    status: int | None = 0
    stdout: str | None = None
    """The whole output, without surrounding whitespace."""
    stdout_json: object = None
    """The value that the program must print."""
    contains: Texts = ()
    not_contains: Texts = ()
    pattern: str | None = None
    timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 60.0


class Trajectory(_Grader, frozen=True, kw_only=True, tag_field="type", tag="trajectory"):
    """Checks the agent's calls in the log; a call that a gate stopped did not run."""

    used: tuple[str | CallPattern, ...] = ()
    not_used: tuple[str | CallPattern, ...] = ()
    """Calls that must not have run."""
    not_tried: tuple[str | CallPattern, ...] = ()
    """Calls that the model must not have requested."""
    order: tuple[str | CallPattern, ...] = ()
    """Calls that must have run in this order, possibly with others between them."""
    asked_before: tuple[str | CallPattern, ...] = ()
    """Calls that a person must have approved before they ran."""
    denied: tuple[str | CallPattern, ...] = ()
    """Calls that a gate must have stopped."""
    skills: tuple[str, ...] = ()
    no_effects: bool = False
    """Whether no call with effects may have run."""
    no_network: bool = False
    in_context: Texts = ()
    """Texts that the last model request must contain, also after a compaction."""
    ended: Texts = ()
    """The reasons of which one must have ended the session."""


class Retrieval(_Grader, frozen=True, kw_only=True, tag_field="type", tag="retrieval"):
    """Checks which files and pages the agent read, and in which order."""

    relevant: tuple[str, ...]
    k: Annotated[int, Meta(ge=1)] = 10
    min_recall: Share | None = None
    min_precision: Share | None = None
    min_mrr: Share | None = None


class Similarity(_Grader, frozen=True, kw_only=True, tag_field="type", tag="similarity"):
    """Measures the similarity of the answer to a text, or to the case's `gold`."""

    text: str | None = None
    method: Literal["rouge_l", "words"] = "rouge_l"
    min: Share = 0.5


class Level(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    score: Share
    criterion: str
    """A description of answers of this level."""


class Criterion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    text: str
    levels: tuple[Level, ...] = ()
    """The levels; without any, a criterion is met or not met."""


class Judge(_Grader, frozen=True, kw_only=True, tag_field="type", tag="judge"):
    """A model judges each criterion in a separate request, and gives its reason first."""

    criteria: tuple[Criterion, ...] = ()
    ready: Literal["faithfulness", "answer_relevance"] | None = None
    """A rubric that comes with Mainspring, instead of `criteria`."""
    model: str | None = None
    """The judge's model, the agent's own by default. It should be of another family."""
    min: Share = 1.0
    """The minimum of the mean over the criteria."""
    shows: Literal["answer", "calls"] = "answer"
    """`calls`: the judge also sees which calls ran and what they returned."""


class Pairwise(_Grader, frozen=True, kw_only=True, tag_field="type", tag="pairwise"):
    """A model judges whether the answer is at least as good as `gold`, in both orders; it counts
    only if both agree. A calibrated judge's preference for length is subtracted."""

    question: str = "Which answer is better?"
    model: str | None = None
    rounds: Annotated[int, Meta(ge=1, le=9)] = 3
    """The number of rounds, of two requests each. Length bias can be corrected only with several
    rounds."""


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
"""In the order in which they run, the cheapest first."""


def grader_name(grader: Grader) -> str:
    return grader.name or str(grader.__struct_config__.tag)


def as_texts(texts: Texts) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts
