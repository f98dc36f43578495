"""`mainspring doctor`: how it is called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action

if TYPE_CHECKING:
    from mainspring.edges.cli import doctor_checks
else:
    doctor_checks = LazyModule("mainspring.edges.cli.doctor_checks")


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> Action:
    """Tell what this machine can do, and what to do about the rest."""
    return partial(doctor_checks.run_checks, json=json)
