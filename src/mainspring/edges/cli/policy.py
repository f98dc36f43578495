"""`mainspring policy`: how its commands are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import policy_acts
else:
    policy_acts = LazyModule("mainspring.edges.cli.policy_acts")

app = typer.Typer(
    help="What agents may do here: which rules hold, what they say, which folders are trusted.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ModeOption: TypeAlias = Annotated[
    str | None, typer.Option("--mode", metavar="MODE", help="Instead of the mode that holds here.")
]
FolderArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[DIR]", help="The folder; else this one.")
]


@app.command()
def check(
    call: Annotated[
        str | None, typer.Argument(metavar="[CALL]", help="As rules are written: 'Bash(ls -l)'.")
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="A tool's name, with --input.")] = None,
    given: Annotated[
        str, typer.Option("--input", metavar="JSON", help="What the tool is given.")
    ] = "{}",
    mode: ModeOption = None,
    sandbox: Annotated[
        bool, typer.Option("--sandbox/--no-sandbox", help="Whether a sandbox would hold it.")
    ] = True,
    json: JsonOption = False,
) -> Action:
    """What would be decided about a call here, by which rule and why. Exit status 0: it is
    allowed, 3: somebody is asked, 1: it is denied."""
    if (call is None) == (tool is None):
        raise typer.BadParameter("give one: a call, or --tool", param_hint="CALL")
    options = policy_acts.CheckOptions(mode=mode, is_sandboxed=sandbox)
    return partial(
        policy_acts.check, call=call, tool=tool, given=given, check_options=options, json=json
    )


@app.command()
def explain(json: JsonOption = False) -> Action:
    """All rules that hold here, in the order they are asked, and what each means."""
    return partial(policy_acts.explain, json=json)


@app.command("test")
def retry(
    rules: Annotated[
        str, typer.Argument(metavar="RULES", help="A settings file with the rules to try.")
    ],
    over: Annotated[
        list[str] | None,
        typer.Option("--over", metavar="SESSION", help="A past session; may be repeated."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    json: JsonOption = False,
) -> Action:
    """Judge the calls of past sessions by other rules: what would now be allowed, asked about or
    denied, and what was."""
    if bool(over) == every:
        raise typer.BadParameter("give one: sessions, or --all", param_hint="--over")
    return partial(policy_acts.retry, rules=rules, over=tuple(over or ()), json=json)


@app.command()
def trust(folder: FolderArgument = None) -> Action:
    """Let the settings of a folder hold in full, as they are now; else they can only forbid."""
    return partial(policy_acts.trust, folder=folder)


@app.command()
def untrust(folder: FolderArgument = None) -> Action:
    """Take trust back: the settings of a folder can only forbid from now on."""
    return partial(policy_acts.untrust, folder=folder)
