"""The places of scenes about workflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.scenes.place import Place, add_prices, meeting, without_sandbox
from tests.cli.upstream import Part

STEPS = """\
name: steps
description: Two steps.
inputs:
  size: {description: The size, default: small}
nodes:
  - id: work
    prompt: "Work on $ARGUMENTS, size $size"
  - id: approve
    approval: {message: "Enough?"}
    depends_on: [work]
  - id: after
    prompt: Finish.
    depends_on: [approve]
"""


ONE = """\
workflow: steps
outputs: {work: done}
gates: {approve: [approve]}
status: completed
"""


def _workflows(place: Place) -> None:
    place.write("AGENTS.md", "You are a clerk.\n")
    place.write("other/AGENTS.md", "You are a cook.\n")
    place.write("workflows/steps.yaml", STEPS)
    place.write("inputs.json", '{"size": "from-file"}')
    place.must("workflow", "trust", "steps")
    place.write(
        "test.yaml", "workflow: steps\noutputs: {work: done}\ngates: {approve: [reject special]}\n"
    )
    place.write("workflows/tests/one.yaml", ONE)


def _gates(place: Place) -> None:
    _workflows(place)
    place.run("workflow", "run", "steps", "words")
    [*_, row] = place.lines("sessions", "ls", "--origin", "workflow")
    place.facts["run"] = str(row["id"])


def _answered(place: Place) -> None:
    _gates(place)
    place.must("workflow", "respond", "$run", "approve", "approve")


PAIR = """\
name: pair
description: Two steps at once.
nodes:
  - id: base
    bash: test -e ok
  - id: one
    prompt: Do one.
    depends_on: [base]
    trigger_rule: all_done
  - id: two
    prompt: Do two.
    depends_on: [base]
    trigger_rule: all_done
  - id: last
    bash: test -e ok
    depends_on: [one, two]
    trigger_rule: all_done
"""


def _pair(place: Place) -> None:
    """A run whose first node has failed, and would not fail again. Its agents say whether they work
    at the same time."""
    add_prices(place)
    place.write("AGENTS.md", "You are a clerk.\n")
    place.write("other/AGENTS.md", "You are a cook.\n")
    place.write("workflows/pair.yaml", PAIR)
    place.must("workflow", "trust", "pair")
    place.run("workflow", "run", "pair")
    place.write("ok", "")
    [*_, row] = place.lines("sessions", "ls", "--origin", "workflow")
    place.facts["run"] = str(row["id"])
    place.otherwise = meeting()


def _unconfined(place: Place) -> None:
    """As `pair`, where no sandbox works."""
    _pair(place)
    without_sandbox(place)
    place.otherwise = _say


def _say(_request: dict[str, Any]) -> tuple[Part, ...]:
    return ("Done.",)


def _failing(place: Place) -> None:
    """The model's first answer to every command is an error."""
    place.otherwise = lambda _: (503,) if len(place.upstream.requests) == 1 else ("Here I am.",)


PLACES: dict[str, Callable[[Place], None]] = {
    "workflows": _workflows,
    "gates": _gates,
    "answered": _answered,
    "pair": _pair,
    "unconfined": _unconfined,
    "failing": _failing,
}
