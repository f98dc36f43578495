"""What `mainspring replay` and `mainspring test record` do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.crew_tree import CrewTree
from mainspring.edges.cli.gist import short
from mainspring.edges.cli.log_keep import export
from mainspring.edges.cli.render import Screen, counted
from mainspring.edges.cli.running import FAILED, INTERRUPTED, STATUS, report_end
from mainspring.edges.cli.sessions import existing_log, find_session, require_store
from mainspring.edges.cli.stage import Left, tell_status, watched
from mainspring.edges.cli.teller import Teller
from mainspring.runtime.outline import outline
from mainspring.runtime.sessions import Result, Session
from mainspring.testing import replay as replaying
from mainspring.testing.branch import Change, branch
from mainspring.wiring.runtime import open_runtime, open_shelf

_TEST = '''\
"""A recorded session, run again offline. `mainspring test record` wrote this."""

from pathlib import Path

from mainspring.testing.replay import replay_file


def test_{name}_goes_as_it_went():
    replay_file(Path(__file__).with_name("{name}.jsonl")).check()
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    start: int | None
    model: str | None
    prompt: str | None
    json: bool


class ReplayView(Struct, frozen=True, kw_only=True):
    session_id: str
    ok: bool
    calls: int
    call: int | None
    """The first that differs."""
    what: str | None
    diff: tuple[str, ...]


async def replay(settings: Settings, *, meant: str, options: Options) -> int:
    if options.model is not None or options.prompt is not None:
        return await _go_on(settings, meant, options)
    async with existing_log(settings) as log, open_shelf(settings) as shelf:
        session = await find_session(log, meant)
        replayed = await replaying.replay(
            log, session.id, start=options.start, facts=_known(shelf.facts)
        )
    screen = Screen(settings)
    if options.json:
        screen.json(msgspec.json.encode(_view(replayed)))
    else:
        _print(screen, replayed)
    return 0 if replayed.ok else 1


def _known(facts: replaying.Facts) -> replaying.Facts:
    """Of this place's catalog; of a model that is not in it any more, what most have."""

    def look_up(name: str) -> replaying.ModelFacts:
        try:
            return facts(name)
        except InvalidInput:
            return replaying.known_facts(name)

    return look_up


def _view(replayed: replaying.Replayed) -> ReplayView:
    found = replayed.divergence
    return ReplayView(
        session_id=replayed.session_id,
        ok=replayed.ok,
        calls=replayed.calls,
        call=None if found is None else found.call,
        what=None if found is None else found.what,
        diff=() if found is None else found.diff,
    )


def _print(screen: Screen, replayed: replaying.Replayed) -> None:
    name = replayed.session_id if screen.width is None else short(replayed.session_id)
    calls = counted(replayed.calls, "call")
    if replayed.is_imported and replayed.ok and not replayed.calls:
        screen.line(("imported ", ""), (name, "bold"), ("  nothing to replay", "dim"))
        return
    if replayed.divergence is None:
        screen.line(("identical ", "green"), (name, "bold"), (f"  {calls} of the model", "dim"))
        return
    found = replayed.divergence
    screen.line(("differs ", "bold red"), (name, "bold"), (f"  at call {found.call}", ""))
    screen.whole((found.what, ""), indent=2)
    for line in found.diff:
        style = {"+": "green", "-": "red"}.get(line[:1], "dim")
        screen.line((f"  {line}", style))


async def _go_on(settings: Settings, meant: str, options: Options) -> int:
    require_store(settings)
    notes = Screen(settings, stderr=True)
    async with open_runtime(settings) as runtime:
        session = await find_session(runtime.log, meant)
        change = Change(model=options.model, prompt=options.prompt, start=options.start)
        found = await branch(runtime, session.id, change)
        told = f"forked at event {found.at}; {found.session.agent.model} answers,"
        notes.whole((f"{told} tools do not run: they say what they said then", "dim"))
        status = await _play(settings, found.session) if found.is_open else 0
        for message in found.messages:
            if status not in (0, FAILED):
                break
            await found.session.send(message)
            status = await _play(settings, found.session)
    return status


async def _play(settings: Settings, session: Session) -> int:
    notes = Screen(settings, stderr=True)
    row = await session.log.session(session.id)
    teller = Teller(settings, crew=CrewTree.of(await session.events(), row.thread_id))
    result = await watched(session, emit=teller.delta, tell=teller.event, say=teller.note)
    teller.close()
    match result:
        case Result():
            await report_end(notes, session, result)
            tell_status(notes, result)
            return STATUS.get(result.reason, FAILED)
        case Left():
            return INTERRUPTED
        case None:
            return 0


async def record(settings: Settings, *, meant: str, output: str) -> int:
    """Raises: InvalidInput."""
    async with existing_log(settings) as log:
        session = await find_session(log, meant)
        name = _name((await outline(log, session)).title or "", session.id)
    folder = Path(settings.folder) / output
    try:
        folder.mkdir(parents=True, exist_ok=True)
        test = folder / f"test_{name}.py"
        await export(settings, meant=session.id, output=f"{output}/{name}.jsonl")
        test.write_text(_TEST.format(name=name), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{output}: {error.strerror or error}") from error
    screen = Screen(settings)
    screen.line(("wrote ", ""), (f"{output}/test_{name}.py", "bold"))
    Screen(settings, stderr=True).whole((f"run it: pytest {output}/test_{name}.py", "dim"))
    return 0


def _name(title: str, session_id: str) -> str:
    words = re.findall(r"[a-z0-9]+", title.lower())[:5]
    return "_".join([*words, short(session_id)])
