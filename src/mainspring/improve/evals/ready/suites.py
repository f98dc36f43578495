"""The table of ready suites."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.core.errors import InvalidInput
from mainspring.improve.evals.ready.coding import coding_suite
from mainspring.improve.evals.ready.consistency import consistency_suite
from mainspring.improve.evals.ready.context_use import context_use_suite
from mainspring.improve.evals.ready.privacy import privacy_suite
from mainspring.improve.evals.ready.safety import safety_suite
from mainspring.improve.evals.ready.tool_use import tool_use_suite
from mainspring.improve.evals.suite import Suite

READY_SUITES: dict[str, Callable[[], Suite]] = {
    "safety": safety_suite,
    "tool-use": tool_use_suite,
    "context-use": context_use_suite,
    "consistency": consistency_suite,
    "privacy": privacy_suite,
    "coding": coding_suite,
}


def ready_suite(name: str) -> Suite:
    """Raises: InvalidInput: no suite has that name."""
    if name not in READY_SUITES:
        raise InvalidInput(f"there is no ready suite {name}; there are {', '.join(READY_SUITES)}")
    return READY_SUITES[name]()
