"""What a campaign has run and asked for, in its log. When it is resumed, it gets the recorded
answers in the same order, and pays only for what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    EvolutionCreated,
    EvolutionEnded,
    EvolutionPromoted,
    EvolutionProposed,
    EvolutionRecommended,
    EvolutionRefused,
    EvolutionScreened,
    EvolutionSignal,
    EvolutionTested,
)
from mainspring.improve.evolution.campaigns.campaign_log import store_candidate
from mainspring.improve.evolution.candidate import Candidate
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer

Step = (
    EvolutionTested
    | EvolutionProposed
    | EvolutionSignal
    | EvolutionRecommended
    | EvolutionScreened
    | EvolutionRefused
    | EvolutionPromoted
    | EvolutionEnded
)
Recorded = TypeVar("Recorded", bound=Step)


@dataclass(slots=True)
class Journal:
    log: SessionLog
    writer: Writer
    steps: list[Step] = field(default_factory=list[Step])
    position: int = 0
    """The number of the next step."""

    @classmethod
    async def open(cls, log: SessionLog, writer: Writer) -> Journal:
        events = await log.read(writer.session_id)
        return cls(log, writer, [step for event in events if (step := _step(event)) is not None])

    @property
    def is_replaying(self) -> bool:
        return self.position < len(self.steps)

    def next(self, kind: type[Recorded]) -> Recorded | None:
        """The recorded next step; `None`: it was not taken yet.

        Raises: InvalidInput: another step was taken, by another version of Mainspring.
        """
        if not self.is_replaying:
            return None
        step = self.steps[self.position]
        if not isinstance(step, kind):
            raise InvalidInput(
                f"the campaign cannot be resumed: its step {self.position + 1} is another one"
                " than this version of Mainspring takes; start a new campaign"
            )
        self.position += 1
        return step

    async def write(self, step: Step, candidates: Sequence[Candidate] = ()) -> None:
        for candidate in candidates:
            await store_candidate(self.writer, candidate)
        await self.writer.append(step)
        self.steps.append(step)
        self.position = len(self.steps)

    async def record(self, step: Step, candidates: Sequence[Candidate] = ()) -> None:
        """Write a step that follows from earlier ones, unless it is there already."""
        if self.next(type(step)) is None:
            await self.write(step, candidates)


def _step(event: Event) -> Step | None:
    payload = event.payload
    return (
        payload if isinstance(payload, Step) and not isinstance(payload, EvolutionCreated) else None
    )
