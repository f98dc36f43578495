"""What the search needs from outside: running trials, and asking for proposals. A campaign's ports
write both into its log, so that nothing is paid for twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Protocol

from msgspec import Struct

from mainspring.improve.evals.suite import Script
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.observation import Observation, TrackName, Trial


class ProposalRequest(Struct, frozen=True, kw_only=True):
    """Failures of one probable cause, for which a track shall propose a change."""

    track: TrackName
    current: Candidate
    cluster: str
    failures: tuple[Observation, ...]
    number: int
    """How many proposals were made before, so that equal requests differ."""
    hints: tuple[str, ...] = ()
    """Changes that worked for the same signal before."""


class Trials(Protocol):
    async def __call__(
        self, candidate: Candidate, trials: Sequence[Trial]
    ) -> Sequence[Observation]:
        """Run trials, in this order.

        Raises: BudgetReached: before anything is spent.
        """
        ...


class RunTrials(Protocol):
    """Runs trials for real: sessions of an agent, or processes of a program."""

    async def run(
        self,
        candidate: Candidate,
        trials: Sequence[Trial],
        key: str,
        *,
        budget_usd: Decimal | None = None,
        scripts: Mapping[str, Script] | None = None,
    ) -> list[Observation]:
        """`key` names this batch; `scripts`: what is done instead, by case, for controls.

        Raises: BudgetReached.
        """
        ...


class Propose(Protocol):
    async def __call__(self, request: ProposalRequest) -> Candidate | None:
        """A changed candidate; `None`: there is nothing to propose.

        Raises: BudgetReached.
        """
        ...


class Check(Protocol):
    def __call__(self, current: Candidate, candidate: Candidate, /) -> str | None:
        """Why the candidate is refused without a trial; `None`: it is not."""
        ...


class Report(Protocol):
    async def __call__(self, step: SearchStep) -> None: ...


class SearchStep(Struct, frozen=True, kw_only=True):
    """A step of the search, for the campaign's log and for people."""

    is_kept: bool
    track: TrackName
    cluster: str
    candidate: Candidate
    current: Candidate
    reason: str
    cases: tuple[str, ...] = ()
    """The evidence."""
    score: float | None = None
    """The share of cases that pass, as far as they were run."""
