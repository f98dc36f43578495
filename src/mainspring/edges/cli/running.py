"""What `mainspring run` does: one prompt, run to its end, told as it happens."""

from __future__ import annotations

from functools import partial

import anyio
import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import error_table
from mainspring.core.envelope import Event, encode_line
from mainspring.core.errors import InvalidInput, LeaseHeld
from mainspring.core.events import Usage
from mainspring.edges.cli.approving import Approver, is_somebody_there, who_asks
from mainspring.edges.cli.crew_tree import CrewTree
from mainspring.edges.cli.gist import short
from mainspring.edges.cli.keyboard import Keyboard
from mainspring.edges.cli.piped import is_piped, read_piped
from mainspring.edges.cli.render import Screen
from mainspring.edges.cli.saying import require_no_command, say
from mainspring.edges.cli.stage import Left, Notices, Stage, open_stage, tell_status, watched
from mainspring.edges.cli.teller import Teller, key_argument
from mainspring.harness.reasons import Terminal
from mainspring.runtime.modes import mode_of
from mainspring.runtime.outline import waiting
from mainspring.runtime.sessions import Result, Session, unheard
from mainspring.wiring.agents import Wanted
from mainspring.wiring.models import hint_for

__all__ = ["Wanted", "run"]

DONE, FAILED, WAITS, LIMIT, INTERRUPTED = 0, 1, 3, 4, 130
STATUS: dict[Terminal, int] = {
    "completed": DONE,
    "compacted": DONE,
    "requires_action": WAITS,
    "max_turns": LIMIT,
    "budget_reached": LIMIT,
    "interrupted_streaming": INTERRUPTED,
    "interrupted_tools": INTERRUPTED,
}
"""Exit status; any other reason is a failure."""
_CARRY_OUT = 'mainspring run --resume {} --mode default "go"'
_PATIENCE = 3.0
"""Seconds that a pipe beside a prompt has to begin with something."""
_GO_ON = "go on: mainspring run --resume {}"


class ResultView(Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """What `--json` prints last."""

    session_id: str
    reason: str
    text: str
    turns: int
    usage: Usage
    cost_usd: str
    detail: str | None
    waiting_for: tuple[str, ...]
    exit_status: int


async def run(
    settings: Settings, *, wanted: Wanted, prompt: str | None, resume: str | None, json: bool
) -> int:
    text = await _asked(prompt, required=resume is None)
    async with open_stage(settings, wanted, resume) as stage:
        if text is not None:
            require_no_command(stage.agent, text)
        session = stage.session or await stage.start()
        own = {await say(settings, stage.agent, session, text)} if text is not None else set[str]()
        try:
            return await _run(settings, stage, session, own, json=json)
        except LeaseHeld:
            if not own:
                raise
        return await _delivered(settings, session, json=json)


async def _run(
    settings: Settings, stage: Stage, session: Session, own: set[str], *, json: bool
) -> int:
    if json:
        return await _as_json(settings, stage, session)
    result = await attended(settings, session, own=own, notices=stage.notices)
    return await _report(settings, stage, session, result)


async def _delivered(settings: Settings, session: Session, *, json: bool) -> int:
    """Another process runs the session: the message is in its inbox, and that one answers it."""
    if json:
        Screen(settings).json(msgspec.json.encode({"type": "delivered", "session_id": session.id}))
    notes = Screen(settings, stderr=True)
    name = session.id if notes.width is None else short(session.id)
    _say(notes, f"another process runs session {name}: it has your message and answers it", "")
    _say(notes, f"watch it: mainspring log follow {name}", "dim")
    return DONE


async def attended(
    settings: Settings,
    session: Session,
    *,
    own: set[str],
    notices: Notices,
    keyboard: Keyboard | None = None,
) -> Result | Left | None:
    """Run a session; whoever sits at the terminal is asked what it waits for, and it goes on."""
    keyboard = keyboard or Keyboard(None, colour=settings.color)
    approver = Approver(settings, keyboard, Screen(settings, stderr=True))
    row = await session.log.session(session.id)
    crew = CrewTree.of(await session.events(), row.thread_id)
    teller = Teller(settings, own=own, crew=crew)
    while True:
        for each in await waiting(session.log, row):
            teller.know(each.call.id, each.call.name, each.call.input)
        try:
            with notices.shown_by(teller.note):
                result = await watched(
                    session, emit=teller.delta, tell=teller.event, say=teller.note
                )
        finally:
            teller.close()
        if isinstance(result, Left) or (result is not None and result.reason != "requires_action"):
            return result
        if not is_somebody_there() or not await approver.ask_all(session):
            return result


async def _asked(prompt: str | None, *, required: bool) -> str | None:
    """The prompt, from the command line, from standard input, or both."""
    if prompt == "-" or (prompt is None and required):
        prompt = await anyio.to_thread.run_sync(read_piped, None, abandon_on_cancel=True)
    elif prompt is not None and is_piped():
        piped = await anyio.to_thread.run_sync(read_piped, _PATIENCE, abandon_on_cancel=True)
        prompt = f"{prompt}\n\n<stdin>\n{piped}\n</stdin>" if piped else prompt
    if required and not prompt:
        raise error_table.NOTHING_ASKED.error(InvalidInput)
    return prompt or None


async def _as_json(settings: Settings, stage: Stage, session: Session) -> int:
    screen, notes = Screen(settings), Screen(settings, stderr=True)

    def tell(event: Event) -> None:
        screen.json(encode_line(event))

    if stage.session is None:
        for event in await session.events():
            tell(event)
    result = await watched(
        session, emit=unheard, tell=tell, say=lambda words: notes.whole((words, "dim"))
    )
    match result:
        case Result():
            status = STATUS.get(result.reason, FAILED)
            screen.json(msgspec.json.encode(_view(result, status)))
            return status
        case Left():
            return INTERRUPTED
        case None:
            return WAITS if _is_waiting(stage) else DONE


def _view(result: Result, status: int) -> ResultView:
    return ResultView(
        session_id=result.session_id,
        reason=result.reason,
        text=result.text,
        turns=result.turns,
        usage=result.usage,
        cost_usd=str(result.cost_usd),
        detail=result.detail,
        waiting_for=result.waiting_for,
        exit_status=status,
    )


async def _report(
    settings: Settings, stage: Stage, session: Session, result: Result | Left | None
) -> int:
    notes = Screen(settings, stderr=True)
    say = partial(_say, notes)
    name = session.id if notes.width is None else short(session.id)
    match result:
        case None:
            return await _tell_idle(notes, stage, session)
        case Left():
            say(f"left; session {name} is kept", "yellow")
            say(_GO_ON.format(name), "dim")
            return INTERRUPTED
        case Result():
            await report_end(notes, session, result)
            tell_status(notes, result, command="mainspring run")
            if result.reason == "completed" and await mode_of(session.log, session.id) == "plan":
                say(f"carry the plan out: {_CARRY_OUT.format(name)}", "dim")
            return STATUS.get(result.reason, FAILED)


def _is_waiting(stage: Stage) -> bool:
    return stage.outline is not None and stage.outline.status == "requires_action"


async def _tell_idle(notes: Screen, stage: Stage, session: Session) -> int:
    if _is_waiting(stage):
        await _tell_waiting(notes, session)
        return WAITS
    name = session.id if notes.width is None else short(session.id)
    before = stage.outline
    reason = f" ({before.reason})" if before is not None and before.reason else ""
    _say(notes, f"nothing to do: session {name} is idle{reason}; give a prompt to go on", "dim")
    return DONE


async def report_end(notes: Screen, session: Session, result: Result) -> None:
    """Why it ended, unless it is simply done; and what waits for whom."""
    _say(notes, "", "")
    match result.reason:
        case "completed" | "compacted":
            return
        case "requires_action":
            await _tell_waiting(notes, session)
        case "interrupted_streaming" | "interrupted_tools":
            _say(notes, "interrupted", "yellow")
        case "model_error" if result.detail:  # whose words were shown when it happened
            if hint := hint_for(result.detail):
                _say(notes, f"hint: {hint}", "dim")
        case reason:
            why = f": {result.detail}" if result.detail else ""
            _say(notes, f"{reason.replace('_', ' ')}{why}", "bold red")
            if STATUS.get(reason) == LIMIT:
                name = session.id if notes.width is None else short(session.id)
                for fix in error_table.LIMIT_REACHED.fix:
                    _say(notes, f"hint: {fix.format(session=name)}", "dim")


async def _tell_waiting(notes: Screen, session: Session) -> None:
    name = session.id if notes.width is None else short(session.id)
    for each in await waiting(session.log, await session.log.session(session.id)):
        call_name = each.call.id if notes.width is None else short(each.call.id)
        about = f" {key_argument(each.call.input)}"
        notes.line(("waits ", "bold yellow"), (who_asks(each), "bold"), (about, ""))
        _say(notes, f"  mainspring sessions answer {name} {call_name} allow|deny", "")


def _say(notes: Screen, words: str, style: str) -> None:
    notes.whole((words, style))
