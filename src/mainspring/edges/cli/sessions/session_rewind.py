"""`mainspring sessions rewind`, `snapshots` and `diff`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import unified_diff
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.lazy_module import LazyModule
from mainspring.core.ports import FileChange, FileChangeKind, Snapshots
from mainspring.core.sender import local_user
from mainspring.edges.cli.options import JsonOption, SessionArgument, YesOption
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    confirm,
    plural,
    print_note,
    short_time,
)
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.rewind import (
    Checkpoint,
    RestorePoint,
    RewindHistory,
    preview_restore,
    read_rewind_history,
    restore,
)

if TYPE_CHECKING:
    from mainspring.wiring import session_files
else:  # it imports the sandbox
    session_files = LazyModule("mainspring.wiring.session_files")

_STYLES: dict[FileChangeKind, str] = {"added": "green", "modified": "yellow", "removed": "red"}
_SIGNS: dict[FileChangeKind, str] = {"added": "+", "modified": "~", "removed": "-"}
_LINE_STYLES = {"+": "green", "-": "red", "@": "cyan", "(": "dim"}
_MAX_SHOWN = 50  # paths
_MAX_DIFF_LINES = 500
"""Of one file."""
_NO_SNAPSHOTS = "has changed no files: there are no snapshots"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindOptions:
    to: Annotated[
        int | None,
        typer.Option("--to", min=1, metavar="N", help="Rewind to the state after this event."),
    ] = None
    turns: Annotated[
        int | None,
        typer.Option(
            "--turns", min=1, metavar="N", help="Rewind to the state before the last N turns."
        ),
    ] = None
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Restore only the files, not the conversation.")
    ] = False
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = (
        False
    )
    yes: YesOption = False


class FileChangeView(Struct, frozen=True):
    path: str
    change: FileChangeKind


class SnapshotView(Struct, frozen=True, kw_only=True):
    seq: int
    time: datetime
    turn: int
    snapshot: str
    files: int | None
    """`None`: restored from an earlier snapshot, which has the count."""
    changed: list[FileChangeView] | None
    """The changes since the previous snapshot; `None` for the first, or if one of the two no longer
    exists."""


class RewindView(Struct, frozen=True, kw_only=True):
    session_id: str
    to: int
    snapshot: str | None
    changed: list[FileChangeView]
    is_dry_run: bool
    fork: str | None
    undo: int | None
    """The event to restore the files to, to undo this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    history: RewindHistory
    to: int
    restore_point: RestorePoint | None
    """`None`: there is no snapshot, and the files stay as they are."""
    changes: Sequence[FileChange]
    """The changes to the files."""
    forks: bool
    """Whether the conversation is rewound too."""


async def rewind(
    settings: Settings,
    *,
    session: SessionArgument,
    options: RewindOptions,
    json: JsonOption = False,
) -> int:
    """Rewind to before the last request, or further. Restores the files, and continues the
    conversation in a fork. You can undo it."""
    if options.to is not None and options.turns is not None:
        raise typer.BadParameter("use either --to or --turns", param_hint="--to")
    return 1 if await rewind_session(settings, session, options, json=json) is None else 0


async def rewind_session(
    settings: Settings,
    session: str,
    options: RewindOptions,
    *,
    json: bool = False,
    is_in_chat: bool = False,
) -> RewindView | None:
    """Ask, rewind and print the result. Returns `None` if the user declined."""
    fork: str | None = None
    undo: int | None = None
    async with open_existing_log(settings) as log:
        plan = await _make_plan(settings, log, session, options)
        if not options.is_dry_run:
            if not options.yes and not _confirm_plan(settings, plan):
                return None
            if plan.restore_point is not None and plan.changes:
                result = await restore(log, plan.history, plan.restore_point)
                plan, undo = replace(plan, changes=result.changes), result.undo_seq
            if plan.forks:
                sender = local_user(settings.user)
                forked = await log.fork(plan.history.session_id, at=plan.to, sender=sender)
                fork = forked.id
    view = RewindView(
        session_id=plan.history.session_id,
        to=plan.to,
        snapshot=None if plan.restore_point is None else plan.restore_point.checkpoint.snapshot,
        changed=_change_views(plan.changes),
        is_dry_run=options.is_dry_run,
        fork=fork,
        undo=undo,
    )
    if json:
        Screen(settings).json(view)
    elif options.is_dry_run:
        _print_plan(Screen(settings), plan)
    else:
        _print_rewound(settings, plan)
        if not is_in_chat:
            _print_next_commands(settings, plan, fork=fork, undo=undo)
    return view


async def _make_plan(
    settings: Settings, log: SessionLog, session: str, options: RewindOptions
) -> _Plan:
    history = await read_rewind_history(log, await find_session(settings, log, session))
    to = history.target(to=options.to, turns=options.turns)
    checkpoint = history.checkpoint_at(to)
    point = None
    if checkpoint is not None:
        snapshots = await session_files.open_snapshots(settings, log, history)
        point = RestorePoint(checkpoint, snapshots)
    elif options.files_only:
        raise InvalidInput(f"session {history.session_id} {_NO_SNAPSHOTS}")
    return _Plan(
        history=history,
        to=to,
        restore_point=point,
        changes=await preview_restore(log, history, point),
        forks=not options.files_only,
    )


def _confirm_plan(settings: Settings, plan: _Plan) -> bool:
    """Raises: InvalidInput: there is no terminal for questions."""
    if not plan.changes:
        return True  # a fork deletes nothing
    if sys.stdin.isatty():
        _print_plan(Screen(settings, stderr=True), plan)
    refusal = "this changes files, and there is no terminal for a confirmation"
    hint = "--yes confirms it, --dry-run shows what would change"
    return confirm(settings, "Go back?", refusal=refusal, hint=hint)


def _print_plan(screen: Screen, plan: _Plan) -> None:
    if plan.restore_point is None:
        screen.paragraph(("no snapshot: the files stay as they are", "dim"))
    elif not plan.changes:
        screen.paragraph(("the files are as they were", "dim"))
    else:
        _print_changes(screen, plan.changes)
    if plan.forks:
        screen.paragraph((f"the conversation continues after event {plan.to}, in a fork", "dim"))


def _print_changes(screen: Screen, changes: Sequence[FileChange]) -> None:
    for item in changes[:_MAX_SHOWN]:
        screen.line((f"{item.kind:<10}", _STYLES[item.kind]), (item.path, ""))
    if len(changes) > _MAX_SHOWN:
        screen.paragraph((f"... and {len(changes) - _MAX_SHOWN} more", "dim"))


def _print_rewound(settings: Settings, plan: _Plan) -> None:
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    if plan.changes:
        files = f"{plural(len(plan.changes), 'file')} as after event {plan.to}"
        totals = f"  {_change_totals(plan.changes)}"
        screen.line(("restored ", "green"), (files, ""), (totals, "dim"))
    else:
        notes.paragraph(("the files are as they were: nothing was changed", "dim"))


def _print_next_commands(
    settings: Settings, plan: _Plan, *, fork: str | None, undo: int | None
) -> None:
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    if undo is not None:
        session = short_id(plan.history.session_id)
        command = f"mainspring sessions rewind {session} --to {undo} --files-only"
        notes.paragraph((f"undo: {command}", "dim"))
    if fork is not None:
        screen.line(("forked ", "green"), (fork, ""), (f"  from event {plan.to}", "dim"))
        notes.paragraph((f"continue: mainspring run --resume {short_id(fork)} 'what to do'", "dim"))


def _change_totals(changes: Iterable[FileChange]) -> str:
    """`+2 ~1 -3`"""
    counts = Counter(item.kind for item in changes)
    return " ".join(f"{sign}{counts[change]}" for change, sign in _SIGNS.items() if counts[change])


def _change_views(changes: Iterable[FileChange]) -> list[FileChangeView]:
    return [FileChangeView(item.path, item.kind) for item in changes]


async def snapshots(
    settings: Settings, *, session: SessionArgument, json: JsonOption = False
) -> int:
    """List the snapshots of the workspace. Shows the event and the changes of each."""
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    async with open_existing_log(settings) as log:
        history = await read_rewind_history(log, await find_session(settings, log, session))
        points = history.checkpoints
        if not points:
            notes.paragraph((f"{history.session_id} {_NO_SNAPSHOTS}", ""))
            return 0
        store = await session_files.open_snapshots(settings, log, history)
        changes = [await _changes_since_previous(store, points, n) for n in range(len(points))]
    if json:
        for checkpoint, changed in zip(points, changes, strict=True):
            screen.json(_snapshot_view(checkpoint, changed))
        return 0
    now = clock.now()
    heads = ["EVENT", "TIME", "TURN", "FILES", "CHANGED"]
    screen.table(heads, [_snapshot_row(*item, now) for item in zip(points, changes, strict=True)])
    hint = f"mainspring sessions rewind {short_id(history.session_id)} --to EVENT"
    notes.paragraph((f"go back: {hint}", "dim"))
    return 0


async def _changes_since_previous(
    snapshots: Snapshots, checkpoints: Sequence[Checkpoint], index: int
) -> list[FileChange] | None:
    if index == 0:
        return None
    try:
        return await snapshots.diff(checkpoints[index - 1].snapshot, checkpoints[index].snapshot)
    except ToolEnvironmentError:
        return None  # the log is here, but the snapshots are gone


def _snapshot_view(checkpoint: Checkpoint, changes: list[FileChange] | None) -> SnapshotView:
    return SnapshotView(
        seq=checkpoint.seq,
        time=checkpoint.time,
        turn=checkpoint.turn,
        snapshot=checkpoint.snapshot,
        files=checkpoint.files,
        changed=None if changes is None else _change_views(changes),
    )


def _snapshot_row(
    checkpoint: Checkpoint, changes: list[FileChange] | None, now: datetime
) -> list[StyledText]:
    files = "restored" if checkpoint.files is None else f"{checkpoint.files:>5}"
    return [
        (f"{checkpoint.seq:>5}", "bold"),
        (short_time(checkpoint.time, now), ""),
        (f"{checkpoint.turn:>4}", ""),
        (files, ""),
        ("" if changes is None else _change_totals(changes), ""),
    ]


async def diff(
    settings: Settings,
    *,
    session: SessionArgument,
    since: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=1,
            metavar="N",
            help="From the state after this event. [default: the start]",
        ),
    ] = None,
    to: Annotated[
        int | None,
        typer.Option(
            "--to", min=1, metavar="N", help="To the state after this event. [default: now]"
        ),
    ] = None,
    names: Annotated[bool, typer.Option("--names", help="Only list the files.")] = False,
    json: JsonOption = False,
) -> int:
    """Show the changes to files in the workspace."""
    screen = Screen(settings)
    async with open_existing_log(settings) as log:
        history = await read_rewind_history(log, await find_session(settings, log, session))
        older = history.checkpoint_at(history.target(to=since or 1, turns=None))
        if older is None:
            raise InvalidInput(f"session {history.session_id} {_NO_SNAPSHOTS}")
        newer = None if to is None else history.checkpoint_at(history.target(to=to, turns=None))
        store = await session_files.open_snapshots(settings, log, history)
        end = None if newer is None else newer.snapshot
        changed = await store.diff(older.snapshot, end)
        diffs = {}
        if not json and not names:
            diffs = await _text_diffs(store, changed, older.snapshot, end)
    if json:
        for change_view in _change_views(changed):
            screen.json(change_view)
    for item in () if json else changed:
        screen.line((f"{item.kind:<10}", _STYLES[item.kind]), (item.path, ""))
        for line in diffs.get(item.path, ()):
            screen.paragraph((line, _LINE_STYLES.get(line[:1], "")))
    if not json and not changed:
        print_note(settings, "no file is different")
    return 0


async def _text_diffs(
    stored: Snapshots, changed: Sequence[FileChange], older: str, newer: str | None
) -> dict[str, list[str]]:
    """The lines of a unified diff for each text file."""
    paths = [item.path for item in changed]
    before, after = await stored.contents(older, paths), await stored.contents(newer, paths)
    return {
        item.path: _text_diff(before.get(item.path), after.get(item.path))
        for item in changed
        if (item.kind == "added" or item.path in before)
        and (item.kind == "removed" or item.path in after)
    }


def _text_diff(before: bytes | None, after: bytes | None) -> list[str]:
    if any(b"\0" in content for content in (before or b"", after or b"")):
        return ["(not text)"]
    old, new = ((text or b"").decode("utf-8", "replace").splitlines() for text in (before, after))
    lines = list(islice(unified_diff(old, new, n=3, lineterm=""), 2, _MAX_DIFF_LINES + 3))
    if len(lines) > _MAX_DIFF_LINES:
        lines[_MAX_DIFF_LINES:] = [f"(more than {_MAX_DIFF_LINES} lines differ)"]
    return lines
