"""Where the `mainspring` command begins. The version is told before anything else is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring import __version__
from mainspring.core.lazy_module import LazyModule

if TYPE_CHECKING:
    from mainspring.edges.cli import app
else:
    app = LazyModule("mainspring.edges.cli.app")

_GLOBAL_OPTIONS = ("--store", "--debug")
"""Options of `mainspring` itself that are understood behind a command as well."""


def hoist_global_options(arguments: Sequence[str]) -> list[str]:
    """The arguments with global options in front, where the parser wants them."""
    front: list[str] = []
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            return [*front, *rest, argument, *remaining]
        name, equals, _ = argument.partition("=")
        if name not in _GLOBAL_OPTIONS:
            rest.append(argument)
            continue
        front.append(argument)
        if name == "--store" and not equals:
            front.extend(value for value in [next(remaining, None)] if value is not None)
    return front + rest


def main() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"mainspring {__version__}\n")
        return
    app.app(hoist_global_options(arguments), prog_name="mainspring")
