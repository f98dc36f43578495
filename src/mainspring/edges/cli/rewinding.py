"""What `mainspring sessions rewind`, `snapshots` and `diff` do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import HandsError, InvalidInput
from mainspring.core.hands import Change, Changed, Snapshots
from mainspring.core.sender import at_machine
from mainspring.edges.cli.gist import short
from mainspring.edges.cli.render import Part, Screen, brief, counted
from mainspring.edges.cli.sessions import existing_log, find_session
from mainspring.log.session_log import SessionLog
from mainspring.runtime.rewinding import Back, Kept, Past, foreseen, read_past, restore
from mainspring.wiring.snapshots import open_snapshots

_STYLES: dict[Change, str] = {"added": "green", "modified": "yellow", "removed": "red"}
_SIGNS: dict[Change, str] = {"added": "+", "modified": "~", "removed": "-"}
_MOST_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    to: int | None
    turns: int | None
    files_only: bool
    is_dry_run: bool
    yes: bool


class ChangedView(Struct, frozen=True):
    path: str
    change: Change


class SnapshotView(Struct, frozen=True, kw_only=True):
    seq: int
    time: datetime
    turn: int
    snapshot: str
    files: int | None
    """`None`: it was restored, and is counted where it was taken."""
    changed: list[ChangedView] | None
    """Since the one before; `None` for the first, and if one of them is gone."""


class RewindView(Struct, frozen=True, kw_only=True):
    session_id: str
    to: int
    snapshot: str | None
    changed: list[ChangedView]
    is_dry_run: bool
    fork: str | None
    undo: int | None
    """The event to go back to, files only, to undo this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    past: Past
    to: int
    back: Back | None
    """`None`: nothing is known of the files, and they stay as they are."""
    changed: Sequence[Changed]
    """What becomes of the files."""
    forks: bool
    """Whether the conversation goes back, too."""


async def rewind(settings: Settings, *, meant: str, wanted: Wanted, json: bool) -> int:
    fork: str | None = None
    undo: int | None = None
    async with existing_log(settings) as log:
        plan = await _planned(settings, log, meant, wanted)
        if not wanted.is_dry_run:
            if not wanted.yes and not _agreed(settings, plan):
                return 1
            if plan.back is not None and plan.changed:
                done = await restore(log, plan.past, plan.back)
                plan, undo = replace(plan, changed=done.changed), done.left
            if plan.forks:
                fork = (
                    await log.fork(
                        plan.past.session_id, at=plan.to, sender=at_machine(settings.user)
                    )
                ).id
    if json:
        view = RewindView(
            session_id=plan.past.session_id,
            to=plan.to,
            snapshot=None if plan.back is None else plan.back.kept.snapshot,
            changed=_views(plan.changed),
            is_dry_run=wanted.is_dry_run,
            fork=fork,
            undo=undo,
        )
        Screen(settings).json(msgspec.json.encode(view))
    elif wanted.is_dry_run:
        _show(Screen(settings), plan)
    else:
        _tell(settings, plan, fork=fork, undo=undo)
    return 0


async def _planned(settings: Settings, log: SessionLog, meant: str, wanted: Wanted) -> _Plan:
    past = await read_past(log, await find_session(log, meant))
    to = past.target(to=wanted.to, turns=wanted.turns)
    kept = past.at(to)
    if kept is None and wanted.files_only:
        raise _no_snapshots(past)
    back = None if kept is None else Back(kept, await open_snapshots(settings, log, past))
    changed = await foreseen(log, past, back)
    return _Plan(past=past, to=to, back=back, changed=changed, forks=not wanted.files_only)


def _no_snapshots(past: Past) -> InvalidInput:
    return InvalidInput(f"session {past.session_id} has changed no files: there are no snapshots")


def _agreed(settings: Settings, plan: _Plan) -> bool:
    """
    Raises:
        InvalidInput: there is nobody to ask.
    """
    if not plan.changed:
        return True  # a fork takes nothing away
    if not sys.stdin.isatty():
        refused = InvalidInput("this changes files, and there is no terminal to ask at")
        refused.add_note("--yes says yes, --dry-run shows what would change")
        raise refused
    notes = Screen(settings, stderr=True)
    _show(notes, plan)
    if typer.confirm("Go back?", err=True):
        return True
    notes.whole(("nothing was changed", "dim"))
    return False


def _show(screen: Screen, plan: _Plan) -> None:
    """What going back means."""
    if plan.back is None:
        screen.whole(("no snapshot: the files stay as they are", "dim"))
    elif not plan.changed:
        screen.whole(("the files are as they were", "dim"))
    else:
        _list(screen, plan.changed)
    if plan.forks:
        screen.whole((f"the conversation goes on after event {plan.to}, in a fork", "dim"))


def _list(screen: Screen, changed: Sequence[Changed]) -> None:
    for each in changed[:_MOST_SHOWN]:
        screen.line((f"{each.change:<10}", _STYLES[each.change]), (each.path, ""))
    if len(changed) > _MOST_SHOWN:
        screen.whole((f"... and {len(changed) - _MOST_SHOWN} more", "dim"))


def _tell(settings: Settings, plan: _Plan, *, fork: str | None, undo: int | None) -> None:
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    session = plan.past.session_id
    if plan.changed:
        told = f"{counted(len(plan.changed), 'file')} as after event {plan.to}"
        screen.line(("restored ", "green"), (told, ""), (f"  {_totals(plan.changed)}", "dim"))
    else:
        notes.whole(("the files are as they were: nothing was changed", "dim"))
    if undo is not None:
        command = f"mainspring sessions rewind {short(session)} --to {undo} --files-only"
        notes.whole((f"undo: {command}", "dim"))
    if fork is not None:
        screen.line(("forked ", "green"), (fork, ""), (f"  from event {plan.to}", "dim"))
        notes.whole((f"go on: mainspring run --resume {short(fork)} 'what to do'", "dim"))


def _totals(changed: Iterable[Changed]) -> str:
    """`+2 ~1 -3`"""
    counts = Counter(each.change for each in changed)
    return " ".join(f"{sign}{counts[change]}" for change, sign in _SIGNS.items() if counts[change])


def _views(changed: Iterable[Changed]) -> list[ChangedView]:
    return [ChangedView(each.path, each.change) for each in changed]


async def snapshots(settings: Settings, *, meant: str, json: bool) -> int:
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    async with existing_log(settings) as log:
        past = await read_past(log, await find_session(log, meant))
        if not past.kept:
            notes.whole((f"{past.session_id} has changed no files: there are no snapshots", ""))
            return 0
        found = await open_snapshots(settings, log, past)
        changes = [await _since(found, past, index) for index in range(len(past.kept))]
    if json:
        for kept, changed in zip(past.kept, changes, strict=True):
            screen.json(msgspec.json.encode(_view(kept, changed)))
        return 0
    now = clock.now()
    heads = ["EVENT", "TIME", "TURN", "FILES", "CHANGED"]
    rows = [_row(*each, now) for each in zip(past.kept, changes, strict=True)]
    screen.table(heads, rows)
    hint = f"mainspring sessions rewind {short(past.session_id)} --to EVENT"
    notes.whole((f"go back: {hint}", "dim"))
    return 0


async def _since(found: Snapshots, past: Past, index: int) -> list[Changed] | None:
    if index == 0:
        return None
    try:
        return await found.diff(past.kept[index - 1].snapshot, past.kept[index].snapshot)
    except HandsError:
        return None  # the log is here, and what it tells of is gone


def _view(kept: Kept, changed: list[Changed] | None) -> SnapshotView:
    return SnapshotView(
        seq=kept.seq,
        time=kept.time,
        turn=kept.turn,
        snapshot=kept.snapshot,
        files=kept.files,
        changed=None if changed is None else _views(changed),
    )


def _row(kept: Kept, changed: list[Changed] | None, now: datetime) -> list[Part]:
    files = "restored" if kept.files is None else f"{kept.files:>5}"
    return [
        (f"{kept.seq:>5}", "bold"),
        (brief(kept.time, now), ""),
        (f"{kept.turn:>4}", ""),
        (files, ""),
        ("" if changed is None else _totals(changed), ""),
    ]


async def diff(
    settings: Settings, *, meant: str, since: int | None, to: int | None, json: bool
) -> int:
    """What the session has changed; of an event, what was there after it."""
    screen = Screen(settings)
    async with existing_log(settings) as log:
        past = await read_past(log, await find_session(log, meant))
        older = past.at(past.target(to=since or 1, turns=None))
        if older is None:
            raise _no_snapshots(past)
        newer = None if to is None else past.at(past.target(to=to, turns=None))
        found = await open_snapshots(settings, log, past)
        changed = await found.diff(older.snapshot, None if newer is None else newer.snapshot)
    if json:
        for each in _views(changed):
            screen.json(msgspec.json.encode(each))
    elif changed:
        for each in changed:
            screen.line((f"{each.change:<10}", _STYLES[each.change]), (each.path, ""))
    else:
        Screen(settings, stderr=True).whole(("no file is different", "dim"))
    return 0
