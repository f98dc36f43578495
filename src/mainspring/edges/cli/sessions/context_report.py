"""`mainspring context show`: past model requests, rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec.structs import replace

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Usage
from mainspring.core.model import User
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, SessionArgument
from mainspring.edges.cli.render.event_summary import truncate
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    diff_style,
    pad,
    plural,
    print_note,
    token_count,
)
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.harness.context.provenance import RequestPart, ToolPart
from mainspring.harness.context.xray import (
    ModelCall,
    RequestDiff,
    cached_share,
    render_message,
    request_diff,
    token_breakdown,
)
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime.session.xrays import (
    COUNTED_SESSIONS,
    explain_shot,
    previous_shot,
    read_shots,
    shot_view,
)

app = command_group()


@command(app)
async def show(
    settings: Settings,
    *,
    session: SessionArgument,
    call: Annotated[
        int | None,
        typer.Option("--call", min=1, metavar="N", help="Show only this call, in detail."),
    ] = None,
    json: JsonOption = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the request itself, byte for byte.")
    ] = False,
) -> int:
    """Show past requests to the model. Lists the tokens of each part, what changed, and why the
    cache broke."""
    if raw and json:
        raise typer.BadParameter("use either --json or --raw", param_hint="--raw")
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        shots = await read_shots(log, row)
        if call is not None and call > len(shots):
            count = plural(len(shots), "call")
            raise InvalidInput(f"there is no call {call}: the session has {count}")
        origins = ((), ()) if call is None else await explain_shot(log, row, shots[call - 1])
    screen = Screen(settings)
    selection = shots if call is None else [shots[call - 1]]
    if not selection:
        print_note(settings, "no model has been called")
    elif raw or json:
        for shot in selection:
            view = shot_view(shot, previous_shot(shots, shot), with_request=call is not None)
            view = replace(view, sources=origins[0], tools=origins[1])
            screen.json(shot.request if raw else view)
    elif call is None:
        _print_list(screen, shots)
    else:
        _print_detail(screen, selection[0], previous_shot(shots, selection[0]))
        _print_origins(screen, *origins)
    return 0


def _print_list(screen: Screen, model_calls: list[ModelCall]) -> None:
    heads = ["CALL", "EVENT", "TOKENS", "CACHED", "TOOLS", "STATIC", "DYNAMIC", "HISTORY", "NEWEST"]
    heads += ["OUT", "THINKING"]
    screen.table([*heads, "CACHE BREAK"], [_shot_row(shot) for shot in model_calls])


def _shot_row(call: ModelCall) -> list[StyledText]:
    tokens = token_breakdown(call)
    share = None if call.end is None else cached_share(call.end.model_usage)
    about = "" if tokens.is_measured else "~"
    counts = (
        tokens.tools,
        tokens.system_static,
        tokens.system_dynamic,
        tokens.history,
        tokens.newest,
    )
    return [
        (f"{call.number:>4}", "bold"),
        (f"{call.started.seq:>5}", "dim"),
        (f"{about + token_count(tokens.total):>6}", ""),
        ("" if share is None else f"{share:>6.0%}", "green" if share else ""),
        *((f"{token_count(count):>6}" if count else "", "") for count in counts),
        *((f"{token_count(count):>8}" if count else "", "dim") for count in _reply_tokens(call)),
        (call.start.cache_break or "", "yellow"),
    ]


def _reply_tokens(call: ModelCall) -> tuple[int, int]:
    """Tokens of the whole reply, and of its thinking."""
    usage = Usage() if call.end is None else call.end.model_usage
    return usage.output_tokens, usage.thought_tokens


def _print_detail(screen: Screen, call: ModelCall, before: ModelCall | None) -> None:
    tokens, changed = token_breakdown(call), request_diff(call, before)
    usage = None if call.end is None else call.end.model_usage
    screen.line((f"call {call.number}", "bold"), (f"  event {call.started.seq}", "dim"))
    for name, value in (
        ("model", call.request.model),
        ("request id", call.start.request_id or ""),
        ("ended", "it did not" if call.end is None else call.end.stop_reason or ""),
        ("cache", _cache_text(usage, changed)),
    ):
        screen.line(pad((f"  {name}", "dim"), 18), (value, ""))
    kind = "counted by the provider" if tokens.is_measured else "estimated"
    screen.line((f"tokens, {kind}", "bold"))
    for name, count in (
        ("tools", tokens.tools),
        ("system, static", tokens.system_static),
        ("system, dynamic", tokens.system_dynamic),
        ("history", tokens.history),
        ("newest turn", tokens.newest),
        ("total", tokens.total),
        ("reply", 0 if usage is None else usage.output_tokens),
        ("reply, thinking", 0 if usage is None else usage.thought_tokens),
    ):
        share = count / tokens.total if tokens.total else 0
        is_part = name not in ("total", "reply", "reply, thinking")
        bar = "█" * round(share * 30) if is_part else ""
        screen.line(pad((f"  {name}", "dim"), 18), (f"{count:>8}  ", ""), (bar, "cyan"))
    _print_change(screen, changed, before)


def _print_origins(screen: Screen, parts: Sequence[RequestPart], tools: Sequence[ToolPart]) -> None:
    screen.table(
        ["PLACE", "TOKENS", "BLOCKS", "FROM", "WHY"],
        [
            [
                (part.place, ""),
                (f"{part.tokens:>6}", ""),
                (f"{part.blocks:>6}", "dim"),
                (part.source, "bold"),
                (part.reason, ""),
            ]
            for part in parts
        ],
    )
    if tools:
        screen.table(
            ["TOOL", "TOKENS", "FROM", f"CALLS IN THE LAST {COUNTED_SESSIONS} SESSIONS"],
            [
                [
                    (tool.name, "bold"),
                    (f"{tool.tokens:>6}", ""),
                    (tool.source, ""),
                    (f"{tool.calls:>5}", "" if tool.calls else "yellow"),
                ]
                for tool in tools
            ],
        )


def _cache_text(usage: Usage | None, changed: RequestDiff) -> str:
    share = None if usage is None else cached_share(usage)
    read_share = (
        "" if usage is None or share is None else f"{share:.0%} of {prompt_tokens(usage)} read"
    )
    broke = f"broke: {changed.cache_break}" if changed.cache_break else ""
    return ", ".join(filter(None, [read_share, broke]))


def _print_change(screen: Screen, changed: RequestDiff, before: ModelCall | None) -> None:
    if before is None:
        screen.line(("messages", "bold"))
    else:
        same = plural(changed.kept_messages, "message")
        screen.line((f"compared with call {before.number}: {same} unchanged", "bold"))
    for line in changed.prefix:
        screen.line((f"  {line}", diff_style(line) or "dim"))
    for sign, messages, style in (("-", changed.gone, "red"), ("+", changed.added, "green")):
        for message in messages:
            role = "user     " if isinstance(message, User) else "assistant"
            screen.line((f"  {sign} {role}  ", style), (truncate(render_message(message)), ""))
