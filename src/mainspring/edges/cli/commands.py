"""How a command is declared: an async function of the settings and the command's options."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TypeAlias, TypeVar

import typer

from mainspring.config import Settings

Action: TypeAlias = Callable[[Settings], Awaitable[int]]
"""A command with its arguments filled in; returns the exit status."""

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Awaitable[int]])


def command_group() -> typer.Typer:
    """A group of commands; its summary is in the table of `app`."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def command(
    group: typer.Typer, name: str | None = None
) -> Callable[[CommandFunction], CommandFunction]:
    """Registers `async def f(settings, *, <arguments and options>) -> int` as a command of the
    group. The function itself stays callable."""

    def register(function: CommandFunction) -> CommandFunction:
        group.command(name)(returning_action(function))
        return function

    return register


def returning_action(function: Callable[..., Awaitable[int]]) -> Callable[..., Action]:
    """What Typer calls: the same parameters without `settings`; returns the action."""

    @wraps(function)
    def parse(**arguments: object) -> Action:
        return partial(function, **arguments)

    signature = inspect.signature(function, eval_str=True)
    parameters = [each for name, each in signature.parameters.items() if name != "settings"]
    parse.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    return parse
