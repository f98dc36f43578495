"""`mainspring run` and `mainspring chat`: their arguments and options."""

from __future__ import annotations

import sys
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import Action

if TYPE_CHECKING:
    from mainspring.edges.cli import chat_command, run_command
else:
    chat_command = LazyModule("mainspring.edges.cli.chat_command")
    run_command = LazyModule("mainspring.edges.cli.run_command")


def _parse_dollars(text: str) -> Decimal:
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation as error:
        raise typer.BadParameter(f"{text!r} is not an amount such as 0.50") from error
    if not amount.is_finite() or amount <= 0:
        raise typer.BadParameter(f"{text} is not an amount above 0")
    return amount


class ModeName(StrEnum):
    default = "default"
    plan = "plan"
    accept_edits = "acceptEdits"
    auto = "auto"
    dont_ask = "dontAsk"
    bypass = "bypassPermissions"


FolderArgument: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="DIR",
        help="The agent's folder: AGENTS.md or CLAUDE.md, and agent.yaml. [default: this folder]",
    ),
]
ModelName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="Which model; separate fallbacks with commas."
        " [default: the agent's, else $MAINSPRING_MODEL, else by the keys that are set]",
    ),
]
ResumeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--resume", "-r", metavar="SESSION", help="Continue a session."),
]
ModeOption: TypeAlias = Annotated[
    ModeName | None,
    typer.Option(
        "--mode",
        help="What may be done without asking. [default: what the settings say, else default]",
        show_choices=True,
    ),
]
WorkspaceOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="DIR",
        help="The folder it works in; it can change nothing else. [default: this folder]",
    ),
]
Unsandboxed: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--dangerously-run-unsandboxed",
        help="If no sandbox works, run commands anyway, with all your permissions.",
    ),
]
Protected: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-protected",
        metavar="PATH",
        help="Let the file tools change this protected file, such as .vscode/settings.json, without"
        " asking; can be repeated. Recorded in the session.",
    ),
]
MaxTurns: TypeAlias = Annotated[
    int | None, typer.Option("--max-turns", min=1, metavar="N", help="For the whole session.")
]
MaxCost: TypeAlias = Annotated[
    Decimal | None,
    typer.Option("--max-cost", parser=_parse_dollars, metavar="USD", help="For the whole session."),
]


def run(  # noqa: PLR0913, PLR0917 (the options of the command)
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="[PROMPT]", help="What to do; - or nothing reads standard input."),
    ] = None,
    agent: FolderArgument = None,
    model: ModelName = None,
    resume_option: ResumeOption = None,
    max_turns: MaxTurns = None,
    max_cost: MaxCost = None,
    mode_option: ModeOption = None,
    workspace_option: WorkspaceOption = None,
    unsandboxed: Unsandboxed = False,
    allow_protected: Protected = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print events as JSON lines, then the result.")
    ] = False,
) -> Action:
    """Run an agent until it is done. Exit status: 0 done, 3 waiting for an answer, 4 a limit
    was reached, 1 failed, 130 interrupted."""
    if prompt is None and resume_option is None and sys.stdin.isatty():
        raise typer.BadParameter("say what to do, or pipe it in", param_hint="PROMPT")
    options = run_command.RunOptions(
        agent=None if agent is None else Path(agent),
        model=model,
        max_turns=max_turns,
        max_cost_usd=max_cost,
        mode=None if mode_option is None else mode_option.value,
        workspace=None if workspace_option is None else Path(workspace_option),
        is_unsandboxed=unsandboxed,
        allow_protected=tuple(allow_protected or ()),
    )
    return partial(run_command.run, options=options, prompt=prompt, resume=resume_option, json=json)


def chat(  # noqa: PLR0913, PLR0917 (the options of the command)
    agent: FolderArgument = None,
    model: ModelName = None,
    resume_option: ResumeOption = None,
    max_turns: MaxTurns = None,
    max_cost: MaxCost = None,
    mode_option: ModeOption = None,
    workspace_option: WorkspaceOption = None,
    unsandboxed: Unsandboxed = False,
    allow_protected: Protected = None,
) -> Action:
    """Talk with an agent. /help lists the commands; Ctrl-D leaves."""
    options = chat_command.RunOptions(
        agent=None if agent is None else Path(agent),
        model=model,
        max_turns=max_turns,
        max_cost_usd=max_cost,
        mode=None if mode_option is None else mode_option.value,
        workspace=None if workspace_option is None else Path(workspace_option),
        is_unsandboxed=unsandboxed,
        allow_protected=tuple(allow_protected or ()),
    )
    return partial(chat_command.chat, options=options, resume=resume_option)
