"""The content of a suite: its cases and the settings of a run. `graders.py` defines the graders."""

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
"""A message of a case that compacts the conversation, as in chat."""
Trials: TypeAlias = Annotated[int, Meta(ge=1, le=100)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class Script(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The steps of a scripted model; `files` is copied over the workspace first."""

    steps: tuple[dict[str, object], ...] = ()
    """Replies, as in a file for `--model scripted:FILE`: `says`, `calls`, `expects`."""
    files: str | None = None
    """A folder beside the suite; the agent cannot reach it."""


class ToolFault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A simulated fault of one of the agent's tools."""

    tool: str
    fault: Fault
    calls: tuple[int, ...] = (1,)
    """The numbers of the calls that fail, from 1."""
    seconds: Seconds = 2.0
    """The duration of a `slow` call, or of a `timeout`."""


class FakeService(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A tool that exists only in this case: it answers from a table, and its calls are in the
    log."""

    tool: str
    description: str
    answers: dict[str, str] = {}
    """Answers by text of the input (JSON with sorted keys), or `*`."""
    input_schema: dict[str, object] = {}
    is_read_only: bool = False
    """Whether its calls have no effects, so that they need no approval."""


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    id: CaseId
    input: str | tuple[str, ...]
    """The user's messages, sent one after the other. `/compact` compacts the conversation."""
    context: str = ""
    """Context before the first message."""
    files: dict[str, str] = {}
    """Files of the workspace: text by path."""
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
    """`platform`: it must pass even if the model obeys the attacker."""
    must_pass: bool = False
    """Whether the gate fails if this case fails."""
    pass_score: Share = 0.0
    """The minimum reward of a pass."""
    mode: Mode | None = None
    """The permission mode; the agent's own by default."""
    memory: MemoryMode = "read_only"
    """Access to memories, including those of the user."""
    approvals: Literal["deny", "allow", "wait"] = "deny"
    """The answer to requests for approval; with `wait`, the session ends there."""
    model: str | None = None
    """Overrides the value of the run."""
    source: str | None = None
    """The session from which it was made."""
    recording: str | None = None
    """A recording of that session for offline trials: a file beside the suite."""
    masks: tuple[str, ...] = ()
    """Patterns (RE2) of text that may differ in the inputs of recorded calls: times, ids, paths."""
    faults: tuple[ToolFault, ...] = ()
    services: tuple[FakeService, ...] = ()
    skills: dict[CaseId, str] = {}
    """More skills of the agent: the text of a `SKILL.md` by name. They are not trusted."""
    solution: Script | None = None
    """A scripted model that passes, to check the suite's health."""
    failure: Script | None = None
    """A scripted model that fails."""
    timeout_seconds: Seconds | None = None
    trials: Trials | None = None

    @property
    def read_only_services(self) -> frozenset[str]:
        return frozenset(service.tool for service in self.services if service.is_read_only)

    @property
    def messages(self) -> tuple[str, ...]:
        inputs = (self.input,) if isinstance(self.input, str) else self.input
        if not self.context or not inputs:
            return inputs
        return (f"<context>\n{self.context}\n</context>\n\n{inputs[0]}", *inputs[1:])


class Gate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The conditions under which a run may be merged."""

    min_pass_rate: Share | None = None
    """By default 1 without a baseline; with a baseline, the comparison decides."""
    max_regressed: Annotated[int, Meta(ge=0)] = 0
    """The number of cases that may regress against the baseline. A case has regressed if its own
    trials say so, at a tenth of `alpha` for all cases together."""
    alpha: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    """The error rate of the paired test against the baseline."""
    effect: Annotated[float, Meta(ge=0.01, le=0.9)] = 0.1
    """The change of the pass rate that the gate should find."""


class Suite(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: CaseId
    description: str = ""
    cases: tuple[Case, ...] = ()
    graders: tuple[Grader, ...] = ()
    """Graders of every case, in addition to its own."""
    trials: Trials = 1
    parallel: Annotated[int, Meta(ge=1, le=256)] = 4
    timeout_seconds: Seconds = 300.0
    gate: Gate = Gate()

    def graders_of(self, case: Case) -> tuple[Grader, ...]:
        return (*self.graders, *case.graders)


class SuiteFile(Struct, frozen=True, kw_only=True):
    """A suite and its file."""

    suite: Suite
    file: Path
    hash: str
    """The hash of everything that affects verdicts."""

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def baseline(self) -> Path:
        return self.folder / "baselines" / f"{self.suite.name}.json"


ENCODER = msgspec.json.Encoder(order="deterministic")
"""Encodes a value in exactly one way, for hashes."""
