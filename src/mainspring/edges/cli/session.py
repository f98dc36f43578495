"""`mainspring sessions`: arguments and options."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import Action, command_group
from mainspring.edges.cli.log import rm
from mainspring.edges.cli.options import JsonOption, SessionArgument, YesOption

if TYPE_CHECKING:
    from mainspring.edges.cli import (
        session_commands,
        session_import,
        session_rewind,
        session_transfer,
    )
else:
    session_import = LazyModule("mainspring.edges.cli.session_import")
    session_rewind = LazyModule("mainspring.edges.cli.session_rewind")
    session_commands = LazyModule("mainspring.edges.cli.session_commands")
    session_transfer = LazyModule("mainspring.edges.cli.session_transfer")

app = command_group()


class OriginName(StrEnum):
    """As `core.sender.OriginType`, without what that brings with it."""

    user = "user"
    api = "api"
    schedule = "schedule"
    trigger = "trigger"
    workflow = "workflow"
    eval = "eval"
    grader = "grader"
    dream = "dream"
    campaign = "campaign"
    gateway = "gateway"
    imported = "import"


class FormatName(StrEnum):
    """As `runtime.import_sessions.source.Format`."""

    claude_code = "claude-code"
    codex = "codex"
    pi = "pi"
    openhands = "openhands"


class ExportFormat(StrEnum):
    claude_code = "claude-code"
    markdown = "markdown"
    html = "html"
    jsonl = "jsonl"


class AnswerChoice(StrEnum):
    allow = "allow"
    deny = "deny"


@app.command()
def ls(
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1)] = 20,
    origin: Annotated[OriginName | None, typer.Option(help="Only sessions of this origin.")] = None,
    json: JsonOption = False,
) -> Action:
    """List sessions with their state and cost, newest first."""
    return partial(session_commands.ls, limit=limit, origin=origin and origin.value, json=json)


@app.command()
def show(session: SessionArgument) -> Action:
    """Show a session as a conversation."""
    return partial(session_commands.show, id_or_part=session)


@app.command()
def fork(
    session: SessionArgument,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="N", help="After this event. [default: the last]"),
    ] = None,
    title: Annotated[str | None, typer.Option(help="A title.")] = None,
    json: JsonOption = False,
) -> Action:
    """Start a new session with this one's events."""
    return partial(session_commands.fork, id_or_part=session, at=at, title=title, json=json)


@app.command()
def cancel(session: SessionArgument) -> Action:
    """Interrupt a running session, in any process. Nothing recorded is lost."""
    return partial(session_commands.cancel, id_or_part=session)


@app.command()
def answer(
    session: SessionArgument,
    call: Annotated[
        str, typer.Argument(metavar="CALL", help="The call's id, or a unique part of it.")
    ],
    verdict: Annotated[
        AnswerChoice, typer.Argument(help="Whether it may run.", metavar="allow|deny")
    ],
    message: Annotated[
        str | None, typer.Option("--message", help="Why not; the agent reads it.")
    ] = None,
) -> Action:
    """Answer a call that waits for approval."""
    if message is not None and verdict is AnswerChoice.allow:
        raise typer.BadParameter("a message goes with deny", param_hint="--message")
    return partial(
        session_commands.answer,
        id_or_part=session,
        call=call,
        verdict=verdict.value,
        message=message,
    )


@app.command()
def rewind(  # noqa: PLR0913, PLR0917 (the options of the command)
    session: SessionArgument,
    to: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", help="To the state after this event.")
    ] = None,
    turns: Annotated[
        int | None, typer.Option("--turns", min=1, metavar="N", help="To before the last N turns.")
    ] = None,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Restore only the files, not the conversation.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Go back to before the last request, or further. Restores the files and continues the
    conversation from there in a fork. Nothing is lost: you can undo it."""
    if to is not None and turns is not None:
        raise typer.BadParameter("give one: --to or --turns", param_hint="--to")
    wanted = session_rewind.RewindOptions(
        to=to, turns=turns, files_only=files_only, is_dry_run=dry_run, yes=yes
    )
    return partial(session_rewind.rewind, id_or_part=session, rewind_options=wanted, json=json)


@app.command()
def snapshots(session: SessionArgument, json: JsonOption = False) -> Action:
    """List the saved states of the workspace: after which event, and what changed."""
    return partial(session_rewind.snapshots, id_or_part=session, json=json)


@app.command()
def diff(
    session: SessionArgument,
    since: Annotated[
        int | None,
        typer.Option("--from", min=1, metavar="N", help="After this event. [default: the start]"),
    ] = None,
    to: Annotated[
        int | None,
        typer.Option("--to", min=1, metavar="N", help="After this event. [default: now]"),
    ] = None,
    json: JsonOption = False,
) -> Action:
    """Show which files of the workspace have changed."""
    return partial(session_rewind.diff, id_or_part=session, since=since, to=to, json=json)


@app.command("import")
def import_(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Session files, or folders of them."),
    ] = None,
    form: Annotated[
        FormatName | None,
        typer.Option("--from", help="Which tool wrote it. [default: detected from its content]"),
    ] = None,
    is_list: Annotated[
        bool, typer.Option("--list", help="Show what could be imported, and import nothing.")
    ] = False,
    json: JsonOption = False,
) -> Action:
    """Import sessions of Claude Code, Codex, pi or OpenHands, to continue them here. Importing
    again adds only what is new."""
    act = session_import.list_importable if is_list else session_import.import_sessions
    return partial(act, paths=paths or [], form=None if form is None else form.value, json=json)


@app.command()
def export(
    session: SessionArgument,
    form: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            "-f",
            help="claude-code: a transcript that Claude Code reads; markdown; html: one page;"
            " jsonl: the log itself, for `log import`.",
        ),
    ] = ExportFormat.claude_code,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is standard output.")
    ] = "-",
) -> Action:
    """Write a session to a file for people or other tools."""
    return partial(session_transfer.export, id_or_part=session, form=form.value, output=output)


@app.command()
def pull(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, such as https://host.")],
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its whole id.")],
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", "-w", metavar="DIR", help="New folder for its files."),
    ] = None,
    json: JsonOption = False,
) -> Action:
    """Move a session from a server to this machine, with its workspace. The server's copy refuses
    turns from then on. The key is MAINSPRING_API_KEY."""
    return partial(session_transfer.pull, url=url, session_id=session, into=workspace, json=json)


@app.command()
def push(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, such as https://host.")],
    session: SessionArgument,
    agent: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The agent on the server that continues it."),
    ] = None,
    environment: Annotated[
        str | None, typer.Option(metavar="ID", help="Environment on the server.")
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", "-w", metavar="DIR", help="Folder to send as its files."),
    ] = None,
    json: JsonOption = False,
) -> Action:
    """Move a session from this machine to a server, with its workspace. The copy here refuses turns
    from then on. The key is MAINSPRING_API_KEY."""
    return partial(
        session_transfer.push,
        url=url,
        id_or_part=session,
        place=(agent, environment),
        workspace=workspace,
        json=json,
    )


@app.command()
def rename(
    session: SessionArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its new title.")],
) -> Action:
    """Rename a session."""
    return partial(session_commands.rename, id_or_part=session, name=name)


@app.command()
def search(
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS...", help="Words that must all occur.")
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1)] = 20,
    json: JsonOption = False,
) -> Action:
    """Find sessions by their text."""
    return partial(session_commands.search, words=words, limit=limit, json=json)


app.command("rm")(rm)
