"""What a suite says: its cases, and what a run of them needs to know. Graders: `graders.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from mainspring.harness.permissions.policy import Mode
from mainspring.improve.evals.graders import Grader
from mainspring.runtime.memory.memory_mode import MemoryMode

Split: TypeAlias = Literal["train", "val", "holdout"]
Tier: TypeAlias = Literal["fast", "full"]
Fault: TypeAlias = Literal["timeout", "429", "500", "cut_off", "stale", "slow"]
Expectation: TypeAlias = Literal["answer", "refuse", "ask"]
CaseId: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
COMPACT = "/compact"
"""A message of a case that sums up the conversation so far, as in chat."""
Trials: TypeAlias = Annotated[int, Meta(ge=1, le=100)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class Script(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a scripted model does in this case; `files` is laid over the workspace first."""

    steps: tuple[dict[str, object], ...] = ()
    """Replies, as in a file for `--model scripted:FILE`: `says`, `calls`, `expects`."""
    files: str | None = None
    """A folder beside the suite; the agent cannot reach it."""


class ToolFault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool of the agent fails as tools do in the world."""

    tool: str
    fault: Fault
    calls: tuple[int, ...] = (1,)
    """Which calls of the tool, counted from 1."""
    seconds: Seconds = 2.0
    """How long a `slow` call takes, and a `timeout` lasts."""


class FakeService(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A tool that exists only in this case: it answers from a table, and what it was asked is in
    the log."""

    tool: str
    description: str
    answers: dict[str, str] = {}
    """Text of the input, as JSON with sorted keys, or `*`, to the answer."""
    input_schema: dict[str, object] = {}
    is_read_only: bool = False
    """Whether its calls change nothing, so that nobody is asked about them."""


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    id: CaseId
    input: str | tuple[str, ...]
    """What the user says; several messages are sent one after the other. `/compact` sums up the
    conversation so far."""
    context: str = ""
    """Information that precedes the first message."""
    files: dict[str, str] = {}
    """The workspace: text by path."""
    workspace: str | None = None
    """A folder beside the suite that is copied into the workspace, before `files`."""
    expect: Expectation | None = None
    graders: tuple[Grader, ...] = ()
    gold: str | None = None
    """The right answer, for graders that compare; the agent never sees it."""
    tags: tuple[str, ...] = ()
    split: Split = "val"
    tier: Tier = "fast"
    kind: Literal["platform", "model"] | None = None
    """`platform`: must hold even if the model obeys the attacker."""
    must_pass: bool = False
    """If it fails, the gate fails, whatever the rest says."""
    pass_score: Share = 0.0
    """The least reward of its incentives with which it passes."""
    mode: Mode | None = None
    """The permission mode; the agent's own by default."""
    memory: MemoryMode = "read_only"
    """Whether it reads and writes memories, those of the user included."""
    approvals: Literal["deny", "allow", "wait"] = "deny"
    """What a person who is asked for approval says; with `wait`, the session ends there."""
    model: str | None = None
    """Instead of the run's."""
    source: str | None = None
    """The session that it was made from."""
    recording: str | None = None
    """A recording of that session, a file beside the suite: for offline trials."""
    masks: tuple[str, ...] = ()
    """Patterns (RE2) of what may differ in the inputs of recorded calls: times, ids, paths."""
    faults: tuple[ToolFault, ...] = ()
    services: tuple[FakeService, ...] = ()
    skills: dict[CaseId, str] = {}
    """More skills of the agent: the text of a `SKILL.md` by name. Nobody has trusted them."""
    solution: Script | None = None
    """A scripted model that passes: the oracle of the suite's health."""
    failure: Script | None = None
    """A scripted model that fails."""
    timeout_seconds: Seconds | None = None
    trials: Trials | None = None

    @property
    def read_only_services(self) -> frozenset[str]:
        return frozenset(service.tool for service in self.services if service.is_read_only)

    @property
    def messages(self) -> tuple[str, ...]:
        given = (self.input,) if isinstance(self.input, str) else self.input
        if not self.context or not given:
            return given
        return (f"<context>\n{self.context}\n</context>\n\n{given[0]}", *given[1:])


class Gate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a run is good enough to merge."""

    min_pass_rate: Share | None = None
    """Absent: 1 without a baseline; with one, the baseline decides."""
    max_regressed: Annotated[int, Meta(ge=0)] = 0
    """How many cases that passed in the baseline may fail."""
    alpha: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    """The error rate of the paired test against the baseline."""


class Suite(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: CaseId
    description: str = ""
    cases: tuple[Case, ...] = ()
    graders: tuple[Grader, ...] = ()
    """For every case, in addition to its own."""
    trials: Trials = 1
    parallel: Annotated[int, Meta(ge=1, le=256)] = 4
    timeout_seconds: Seconds = 300.0
    gate: Gate = Gate()

    def graders_of(self, case: Case) -> tuple[Grader, ...]:
        return (*self.graders, *case.graders)


class SuiteFile(Struct, frozen=True, kw_only=True):
    """A suite and where it was read."""

    suite: Suite
    file: Path
    hash: str
    """Of everything that counts for verdicts."""

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def baseline(self) -> Path:
        return self.folder / "baselines" / f"{self.suite.name}.json"


ENCODER = msgspec.json.Encoder(order="deterministic")
"""One text for one value: what is hashed."""
