"""Builds the scripts of ready suites: the texts and calls of a scripted model."""

from __future__ import annotations

from mainspring.improve.evals.suite import Script


def calls(tool: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"tool": tool, "input": arguments}]}


def script(*steps: str | dict[str, object]) -> Script:
    """A step that is a string is a text that the model says."""
    return Script(steps=tuple({"says": step} if isinstance(step, str) else step for step in steps))
