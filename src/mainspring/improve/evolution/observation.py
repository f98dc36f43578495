"""What one trial of one case showed: its score, the checks that failed, and facts about the run
that are read from its log, not from its prose. The structs are those of the log."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from mainspring.core.events import (
    EvolutionFact,
    EvolutionFactKind,
    EvolutionResult,
    EvolutionTrack,
)

TrackName: TypeAlias = EvolutionTrack
FactKind: TypeAlias = EvolutionFactKind
Fact: TypeAlias = EvolutionFact
Observation: TypeAlias = EvolutionResult


class Trial(Struct, frozen=True, array_like=True):
    """One run of one case; trials of a case differ by their number."""

    case_id: str
    number: int = 1
