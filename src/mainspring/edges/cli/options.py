"""Arguments and options that several command groups share, and how their values are parsed."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, TypeAlias

import typer

SessionArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session's id, a unique part of it, or `last`.")
]
FormOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--form", metavar="JSON", help="The fields of the form as JSON, if the question has one."
    ),
]
ChoiceOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--choice", metavar="CHOICE", help="One of the choices, if the question has any."),
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, one object per line.")
]
YesOption: TypeAlias = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")
]
AgentFolderOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--agent", metavar="DIR", help="The agent's folder. [default: this folder]"),
]
CountOption: TypeAlias = Annotated[
    int, typer.Option("--limit", "-n", help="How many to show.", min=1)
]
OutputOption: TypeAlias = Annotated[
    str,
    typer.Option("--output", "-o", metavar="FILE", help="The file to write; - is standard output."),
]
TenantOption: TypeAlias = Annotated[
    str, typer.Option("--tenant", help="The tenant to use.", metavar="ID")
]
LimitOption: TypeAlias = Annotated[
    int, typer.Option("--limit", "-n", help="How many to show.", min=1, max=1000)
]

_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_duration(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time such as 90m, 12h, 30d or 8w")
    return timedelta(seconds=int(match[1]) * _UNIT_SECONDS[match[2]])


def parse_dollars(text: str) -> Decimal:
    try:
        return Decimal(text.removeprefix("$"))
    except InvalidOperation:
        raise typer.BadParameter(f"{text!r} is not an amount such as 25 or 0.50") from None
