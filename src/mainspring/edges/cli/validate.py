"""`mainspring validate`: how it is called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import validate_acts
else:
    validate_acts = LazyModule("mainspring.edges.cli.validate_acts")


def validate(
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="The agent's; else this folder.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="A warning is a failure, too.")] = False,
    json_option: JsonOption = False,
) -> Action:
    """Check an agent's folder: what is wrong and how to mend it, what is honoured, and what is not
    and why. Exit status 1 if something is wrong."""
    return partial(validate_acts.check, folder=folder, strict=strict, json=json_option)
