"""The model and the effort of the next request: the agent's own, unless a skill in use or the user
says otherwise for this run."""

from __future__ import annotations

from mainspring.core.model import Effort
from mainspring.harness.gear import Gear

_RISING: tuple[Effort, ...] = ("none", "low", "medium", "high", "xhigh", "max")
_HARD: Effort = "high"


def model_for(gear: Gear) -> str | None:
    """The model that the newest skill in use names."""
    return next((used.model for used in reversed(gear.skills) if used.model), None)


def effort_for(gear: Gear, own: Effort) -> Effort:
    """The effort of the newest skill in use that names one. After `ultrathink` it is at least
    high, and at least one level above that."""
    named: list[Effort] = [used.effort for used in gear.skills if used.effort is not None]
    effort = named[-1] if named else own
    if not gear.thinks_hard:
        return effort
    above = min(_RISING.index(effort) + 1, len(_RISING) - 1)
    return _RISING[max(above, _RISING.index(_HARD))]
