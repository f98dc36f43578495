"""`mainspring adopt`: shows what came from somewhere else, and accepts it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Annotated

import typer

from mainspring.config import Settings, is_postgres
from mainspring.core.errors import ForeignSession
from mainspring.edges.cli.options import JsonOption, YesOption
from mainspring.edges.cli.render.printing import Screen, confirm, plural, print_note
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.runtime.adoption import (
    ForeignEffects,
    adopt_conversation,
    adopt_everything,
    foreign_records,
    foreign_sessions,
    read_effects,
)

_SHOWN = 5
"""How many sessions are described in detail."""


async def adopt(
    settings: Settings,
    *,
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION]", help="Continue the conversation of this session in this folder."
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Accept everything in the store as yours, as it is."),
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> int:
    """Accept sessions and stores that came from somewhere else. Without arguments, only show what
    came with a repository, an import, a backup or another installation; exit status 1: something
    did."""
    if session is not None and everything:
        raise typer.BadParameter("name a session, or give --all", param_hint="--all")
    async with open_existing_log(settings) as log:
        if session is not None:
            return await _adopt_one(settings, log, session, yes=yes, json=json)
        return await _adopt_all(settings, log, is_accepted=everything, yes=yes, json=json)


async def _adopt_one(
    settings: Settings, log: SessionLog, session: str, *, yes: bool, json: bool
) -> int:
    row = await find_session(settings, log, session)
    if log.store.provenance.is_own(row):
        print_note(settings, f"session {row.id} is yours already")
        return 0
    effects = await read_effects(log, row)
    _print_effects(Screen(settings), effects, json=json)
    if not yes and not _confirm(settings, _QUESTION):
        return 1
    await adopt_conversation(log, row.id, workspace=settings.folder)
    print_note(settings, f"adopted; continue: mainspring run --resume {row.id} TEXT")
    return 0


_QUESTION = (
    "Continue its conversation here? Its rules, hooks, mode, grants and waiting messages end"
)


async def _adopt_all(
    settings: Settings, log: SessionLog, *, is_accepted: bool, yes: bool, json: bool
) -> int:
    sessions, records = await foreign_sessions(log), await foreign_records(log.store)
    if not sessions and not records:
        print_note(settings, f"everything in {settings.store_label} is yours")
        return 0
    screen = Screen(settings)
    for row in sessions[-_SHOWN:]:
        _print_effects(screen, await read_effects(log, row), json=json)
    kinds = Counter(row.kind for row in records)
    if json:
        screen.json({"foreign_sessions": len(sessions), "foreign_records": dict(kinds)})
    else:
        texts = [plural(number, kind.replace("_", " ")) for kind, number in sorted(kinds.items())]
        texts = [plural(len(sessions), "session"), *texts]
        screen.paragraph((f"not written by this installation: {', '.join(texts)}", "bold"))
    _note_other_owner(settings)
    if not is_accepted:
        hint = "`mainspring adopt SESSION` takes one conversation, `mainspring adopt --all` all"
        print_note(settings, hint)
        return 1
    question = "Is this store yours? Its keys, deployments, rules and hooks take effect then"
    if not yes and not _confirm(settings, question):
        return 1
    await adopt_everything(log)
    print_note(settings, f"adopted: {settings.store_label} is yours")
    return 0


def _note_other_owner(settings: Settings) -> None:
    if is_postgres(settings.store) or sys.platform == "win32":
        return
    owner = os.stat(settings.store).st_uid
    if owner != os.geteuid():
        note = (
            "warning: this store belongs to another user (uid %d). A server that runs as that user"
            " does not start with what you adopt: use the store as that user, with sudo -u"
        )
        print_note(settings, note % owner, "yellow")


def _confirm(settings: Settings, question: str) -> bool:
    return confirm(settings, question, declined="nothing was adopted")


def _print_effects(screen: Screen, effects: ForeignEffects, *, json: bool) -> None:
    if json:
        screen.json(effects)
        return
    screen.paragraph((effects.session_id, "bold"))
    for name, value in _lines(effects):
        screen.paragraph((f"  {name}: ", "dim"), (value, ""))


def _lines(effects: ForeignEffects) -> list[tuple[str, str]]:
    if not effects.is_intact:
        return [("log", "changed after it was written; it can only be read")]
    lines = [
        ("workspace", effects.workspace or ""),
        ("mode", effects.mode or ""),
        *(("hook", command) for command in effects.hooks),
        *(("allows", rule) for rule in effects.allow_rules),
        ("permission changes", str(effects.permission_changes or "")),
        ("waits to be read", ", ".join(effects.waiting)),
    ]
    return [(name, value) for name, value in lines if value]


async def find_own(settings: Settings, log: SessionLog, id_or_part: str) -> SessionRow:
    """The session, if it is this installation's own; at a terminal, ask whether to adopt it.

    Raises: SessionNotFound, InvalidInput, ForeignSession.
    """
    row = await find_session(settings, log, id_or_part)
    provenance = log.store.provenance
    try:
        await provenance.require_own(log.store, row)
    except ForeignSession:
        if provenance.is_own(row) or not sys.stdin.isatty() or not sys.stderr.isatty():
            raise
        _print_effects(Screen(settings, stderr=True), await read_effects(log, row), json=False)
        if not _confirm(settings, _QUESTION):
            raise
        await adopt_conversation(log, row.id, workspace=settings.folder)
        return await log.session(row.id)
    return row
