"""Declares commands: async functions of the settings and the command's options."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

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


class ParsedCommand(NamedTuple):
    action: Action
    context: typer.Context
    """Whose usage is printed if the action finds a usage error."""


_CONTEXT = inspect.Parameter(
    "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
)


def returning_action(function: Callable[..., Awaitable[int]]) -> Callable[..., ParsedCommand]:
    """The function that Typer calls: it has the same parameters without `settings` and returns the
    action. A dataclass parameter is expanded into its fields."""
    signature = inspect.signature(function, eval_str=True)
    parameters = [item for name, item in signature.parameters.items() if name != "settings"]
    groups: dict[str, Any] = {  # Any: dataclasses
        item.name: item.annotation for item in parameters if is_dataclass(item.annotation)
    }

    @wraps(function)
    def parse(context: typer.Context, **arguments: object) -> ParsedCommand:
        for name, group in groups.items():
            values = {field.name: arguments.pop(field.name) for field in fields(group)}
            arguments[name] = group(**values)
        return ParsedCommand(partial(function, **arguments), context)

    options = [
        option
        for item in parameters
        for option in (_field_parameters(item.annotation) if item.name in groups else [item])
    ]
    parse.__signature__ = signature.replace(parameters=[_CONTEXT, *options])  # pyright: ignore[reportAttributeAccessIssue]
    return parse


def _field_parameters(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        item.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[item.name])
        for item in inspect.signature(group).parameters.values()
    ]
