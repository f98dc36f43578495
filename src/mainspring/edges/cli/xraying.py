"""What `mainspring context show` does."""

from __future__ import annotations

import msgspec

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Usage
from mainspring.core.model import Message, User
from mainspring.edges.cli.gist import cut
from mainspring.edges.cli.render import Part, Screen, counted, padded, token_count
from mainspring.edges.cli.sessions import existing_log, find_session
from mainspring.harness.context.anatomy import Change, cached_share, change, parts, told
from mainspring.harness.context.xray import Shot
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime.xrays import before, read_shots, shot_view


async def show(settings: Settings, *, meant: str, call: int | None, json: bool, raw: bool) -> int:
    async with existing_log(settings) as log:
        shots = await read_shots(log, await find_session(log, meant))
    if call is not None and call > len(shots):
        raise InvalidInput(
            f"there is no call {call}: the session has {counted(len(shots), 'call')}"
        )
    screen = Screen(settings)
    chosen = shots if call is None else [shots[call - 1]]
    if not chosen:
        Screen(settings, stderr=True).whole(("no model has been called", "dim"))
    elif raw:
        for shot in chosen:
            screen.json(msgspec.json.encode(shot.request))
    elif json:
        for shot in chosen:
            screen.json(msgspec.json.encode(shot_view(shots, shot, with_request=call is not None)))
    elif call is None:
        _list(screen, shots)
    else:
        _detail(screen, chosen[0], before(shots, chosen[0]))
    return 0


def _list(screen: Screen, shots: list[Shot]) -> None:
    heads = ["CALL", "EVENT", "TOKENS", "CACHED", "TOOLS", "STATIC", "DYNAMIC", "HISTORY", "NEWEST"]
    screen.table([*heads, "CACHE BREAK"], [_row(shot) for shot in shots])


def _row(shot: Shot) -> list[Part]:
    found = parts(shot)
    share = None if shot.end is None else cached_share(shot.end.model_usage)
    about = "" if found.is_measured else "~"
    counts = (found.tools, found.system_static, found.system_dynamic, found.history, found.newest)
    return [
        (f"{shot.number:>4}", "bold"),
        (f"{shot.started.seq:>5}", "dim"),
        (f"{about + token_count(found.total):>6}", ""),
        ("" if share is None else f"{share:>6.0%}", "green" if share else ""),
        *((f"{token_count(count):>6}" if count else "", "") for count in counts),
        (shot.start.cache_break or "", "yellow"),
    ]


def _detail(screen: Screen, shot: Shot, before: Shot | None) -> None:
    found, changed = parts(shot), change(shot, before)
    usage = None if shot.end is None else shot.end.model_usage
    screen.line((f"call {shot.number}", "bold"), (f"  event {shot.started.seq}", "dim"))
    for name, value in (
        ("model", shot.request.model),
        ("request id", shot.start.request_id or ""),
        ("ended", "it did not" if shot.end is None else shot.end.stop_reason or ""),
        ("cache", _cache(usage, changed)),
    ):
        screen.line(padded((f"  {name}", "dim"), 18), (value, ""))
    kind = "counted by the provider" if found.is_measured else "estimated"
    screen.line((f"tokens, {kind}", "bold"))
    for name, count in (
        ("tools", found.tools),
        ("system, static", found.system_static),
        ("system, dynamic", found.system_dynamic),
        ("history", found.history),
        ("newest turn", found.newest),
        ("total", found.total),
    ):
        share = count / found.total if found.total else 0
        bar = "█" * round(share * 30) if name != "total" else ""
        screen.line(padded((f"  {name}", "dim"), 18), (f"{count:>8}  ", ""), (bar, "cyan"))
    _print_change(screen, changed, before)


def _cache(usage: Usage | None, changed: Change) -> str:
    share = None if usage is None else cached_share(usage)
    read = "" if usage is None or share is None else f"{share:.0%} of {prompt_tokens(usage)} read"
    return ", ".join(
        filter(None, [read, f"broke: {changed.cache_break}" * bool(changed.cache_break)])
    )


def _print_change(screen: Screen, changed: Change, before: Shot | None) -> None:
    if before is None:
        screen.line(("messages", "bold"))
    else:
        kept = counted(changed.kept_messages, "message")
        screen.line((f"against call {before.number}: {kept} the same", "bold"))
    for line in changed.prefix:
        screen.line((f"  {line}", _diff_style(line)))
    for sign, messages, style in (("-", changed.gone, "red"), ("+", changed.added, "green")):
        for message in messages:
            screen.line((f"  {sign} {_role(message)}  ", style), (cut(told(message)), ""))


def _diff_style(line: str) -> str:
    return {"+": "green", "-": "red"}.get(line[:1], "dim")


def _role(message: Message) -> str:
    return "user     " if isinstance(message, User) else "assistant"
