"""`mainspring policy`: arguments and options."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import Action, command_group
from mainspring.edges.cli.options import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import policy_commands
else:
    policy_commands = LazyModule("mainspring.edges.cli.policy_commands")

app = command_group()

ModeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--mode", metavar="MODE", help="Use this mode instead of the current one."),
]
FolderArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[DIR]", help="The folder. [default: this folder]")
]


@app.command()
def check(
    call: Annotated[
        str | None, typer.Argument(metavar="[CALL]", help="As rules are written: 'Bash(ls -l)'.")
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="A tool's name, with --input.")] = None,
    given: Annotated[str, typer.Option("--input", metavar="JSON", help="The tool's input.")] = "{}",
    mode: ModeOption = None,
    sandbox: Annotated[
        bool,
        typer.Option("--sandbox/--no-sandbox", help="Whether the call would run in a sandbox."),
    ] = True,
    json: JsonOption = False,
) -> Action:
    """Show what would be decided about a call here, by which rule and why. Exit status 0: allowed,
    3: a person is asked, 1: denied."""
    if (call is None) == (tool is None):
        raise typer.BadParameter("give one: a call, or --tool", param_hint="CALL")
    options = policy_commands.CheckOptions(mode=mode, is_sandboxed=sandbox)
    return partial(
        policy_commands.check, call=call, tool=tool, given=given, check_options=options, json=json
    )


@app.command()
def explain(json: JsonOption = False) -> Action:
    """Show all rules that apply here, in order of evaluation, and what each means."""
    return partial(policy_commands.explain, json=json)


@app.command("test")
def retry(
    rules: Annotated[
        str, typer.Argument(metavar="RULES", help="A settings file with the rules to try.")
    ],
    over: Annotated[
        list[str] | None,
        typer.Option("--over", metavar="SESSION", help="A past session; can be repeated."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    json: JsonOption = False,
) -> Action:
    """Apply other rules to the calls of past sessions: what would be allowed, asked about or
    denied, compared with what was."""
    if bool(over) == every:
        raise typer.BadParameter("give one: sessions, or --all", param_hint="--over")
    return partial(policy_commands.retry, rules=rules, over=tuple(over or ()), json=json)


@app.command()
def trust(folder: FolderArgument = None) -> Action:
    """Trust the settings of a folder as they are now. Untrusted settings can only forbid."""
    return partial(policy_commands.trust, folder=folder)


@app.command()
def untrust(folder: FolderArgument = None) -> Action:
    """Revoke trust: from now on, the settings of a folder can only forbid."""
    return partial(policy_commands.untrust, folder=folder)
