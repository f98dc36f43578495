"""All options of all commands, from the parser itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from typer.main import get_command

from mainspring.edges.cli.app import LazyGroup, app

Parser = Any
"""Typer's own classes are private."""


def parser_options() -> set[tuple[str, str]]:
    """The command and the option's first name; `--no-x` of a pair is an option of its own."""
    return {*_options((), get_command(app))}


def _options(path: tuple[str, ...], command: Parser) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        if parameter.param_type_name == "option":
            for name in (parameter.opts[:1], parameter.secondary_opts[:1]):
                yield from ((" ".join(path), text) for text in cast("list[str]", name))
    for name in sorted(getattr(command, "commands", {})):
        child = command.load(name) if isinstance(command, LazyGroup) else command.commands[name]
        yield from _options((*path, name), child)
