"""`evolve.yaml` of an agent's folder: what a campaign may change, spend and decide."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import yaml
from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput
from mainspring.error_table import with_hints
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evolution.diagnosis import AVAILABLE_TRACKS
from mainspring.improve.evolution.observation import TrackName

FILE = "evolve.yaml"
Preset: TypeAlias = Literal["innovate", "harden", "repair-only"]
Calls: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]


class CallLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    metric: Calls = 400
    """Trials of cases, those of the gate included."""
    proposer: Calls = 60
    judge: Calls = 400
    recall: Calls = 400


class EvolveSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    suite: str = ""
    """The suite that measures the agent; campaigns on a program have the program's cases."""
    improver: str = ""
    """The model that proposes changes; the agent's own by default."""
    preset: Preset = "innovate"
    tracks: tuple[TrackName, ...] = AVAILABLE_TRACKS
    calls: CallLimits = CallLimits()
    budget_usd: str | None = None
    policy: Literal["review", "apply"] = "review"
    """`review`: a person promotes; `apply`: what passes the gate is used at once."""
    canary: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """The share of sessions that use a promoted version first; 1: all."""
    pinned: tuple[str, ...] = ()
    """Files that are never changed."""
    protected: tuple[str, ...] = ()
    """Lines of the agent's texts that no change may remove or alter."""
    seed: int = 0
    rotation: int = 0
    """Another number draws other sealed cases, if the suite has no split `holdout`."""
    most_refusals: Annotated[int, Meta(ge=1, le=1000)] = 40
    trials: Annotated[int, Meta(ge=1, le=20)] = 1
    """Trials of each sealed case."""
    regressions: bool = False
    """Whether a confirmed regression opens a campaign by itself."""
    hard: tuple[str, ...] = ()
    """Graders of real sessions whose failure rolls a version back at once."""
    minutes: Annotated[float, Meta(gt=0)] | None = None
    """How long the search may take; the gate then decides about what it has."""
    harness: tuple[str, ...] = ()
    """Files of the agent's own code that the harness track may change."""
    corpus: str | None = None
    """A folder of documents that the agent lacks, for the knowledge track."""

    @property
    def limit_usd(self) -> Decimal | None:
        return None if self.budget_usd is None else Decimal(self.budget_usd)


class PresetPolicy(Struct, frozen=True):
    """What a preset changes: the error rate, the tracks, and the largest change."""

    alpha: float
    tracks: tuple[TrackName, ...]
    max_files: int
    max_lines: int


PRESETS: dict[Preset, PresetPolicy] = {
    "innovate": PresetPolicy(0.05, AVAILABLE_TRACKS, 20, 2_000),
    "harden": PresetPolicy(0.02, ("prompt", "playbook", "skill", "tools", "harness"), 8, 400),
    "repair-only": PresetPolicy(0.01, ("prompt", "playbook", "skill"), 2, 60),
}
"""Error rates by research; the caps are what a person can still review: about a large, a medium
and a small pull request."""

_FIRST = """\
# What `mainspring evolve` may change, spend and decide. All fields: docs/evolution.md
suite: {suite}
improver: {improver}
preset: innovate        # innovate, harden or repair-only
tracks: [prompt, playbook, skill, tools, harness, knowledge]
calls: {{metric: 400, proposer: 60}}
# budget_usd: "5.00"    # the most that a campaign may cost
policy: review          # review: you promote; apply: what passes the gate is used at once
pinned: []              # files that are never changed
protected: []           # lines of AGENTS.md that no change may touch
"""


def read_settings(folder: Path, *, is_optional: bool = False) -> EvolveSettings:
    """Raises: InvalidInput: there are none, or they have mistakes."""
    content = read_bounded(folder / FILE)
    if content is None and is_optional:
        return EvolveSettings()
    if content is None:
        error = InvalidInput(f"there is no {FILE} in {folder}")
        raise with_hints(error, "`mainspring evolve init` writes one")
    try:
        settings = msgspec.convert(yaml.safe_load(content), EvolveSettings)
        _ = settings.limit_usd
    except (yaml.YAMLError, msgspec.ValidationError, InvalidOperation) as error:
        raise InvalidInput(f"{folder / FILE}: {error}") from error
    allowed = PRESETS[settings.preset].tracks
    tracks = tuple(track for track in settings.tracks if track in allowed)
    return replace(settings, tracks=tracks)


def write_first_settings(folder: Path, *, suite: str, improver: str) -> Path:
    """Raises: InvalidInput: the file exists already, or cannot be written."""
    file = folder / FILE
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(_FIRST.format(suite=suite, improver=improver or '""'))
    except FileExistsError:
        raise InvalidInput(f"{file} exists already") from None
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from error
    return file
