"""The options of `mainspring run` that define an outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.printing import dollars, plural
from mainspring.files.atomic_file import read_bounded
from mainspring.harness.outcomes import GradingEstimate

_MAX_BYTES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeArguments:
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome",
            metavar="FILE",
            help="A rubric: the work is graded by it, and revised until it meets it. A line `-"
            " run: COMMAND` is a command that must succeed.",
        ),
    ] = None
    max_iterations: Annotated[
        int | None,
        typer.Option(
            "--max-iterations",
            min=1,
            max=20,
            metavar="N",
            help="How often to grade at most. [default: 3]",
        ),
    ] = None

    def rubric(self, settings: Settings) -> str | None:
        """Raises: InvalidInput."""
        if self.outcome is None:
            return None
        content = read_bounded(Path(settings.folder, self.outcome), max_bytes=_MAX_BYTES)
        if content is None:
            raise InvalidInput(f"--outcome {self.outcome}: there is no such file")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"--outcome {self.outcome}: not UTF-8 text") from error


def estimate_text(estimate: GradingEstimate) -> str:
    judged, commands = estimate.judged, estimate.commands
    run = f" and {plural(commands, 'command')}" if commands else ""
    cost = f"about {dollars(estimate.cost_usd)}" if judged else "nothing"
    gradings = plural(estimate.iterations, "grading")
    criteria = "1 criterion" if judged == 1 else f"{judged} criteria"
    return f"outcome: {criteria}{run}, up to {gradings}; grading costs {cost}"
