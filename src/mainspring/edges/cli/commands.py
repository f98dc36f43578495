"""How a command is declared: an async function of the settings and the command's options."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from typing import Any, TypeAlias, TypeVar, get_type_hints

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
    """What Typer calls: the same parameters without `settings`; returns the action. A parameter
    that is a dataclass stands for its fields."""
    signature = inspect.signature(function, eval_str=True)
    parameters = [each for name, each in signature.parameters.items() if name != "settings"]
    groups: dict[str, Any] = {  # Any: dataclasses
        each.name: each.annotation for each in parameters if is_dataclass(each.annotation)
    }

    @wraps(function)
    def parse(**arguments: object) -> Action:
        for name, group in groups.items():
            values = {field.name: arguments.pop(field.name) for field in fields(group)}
            arguments[name] = group(**values)
        return partial(function, **arguments)

    options = [
        option
        for each in parameters
        for option in (_field_parameters(each.annotation) if each.name in groups else [each])
    ]
    parse.__signature__ = signature.replace(parameters=options)  # pyright: ignore[reportAttributeAccessIssue]
    return parse


def _field_parameters(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[each.name])
        for each in inspect.signature(group).parameters.values()
    ]
