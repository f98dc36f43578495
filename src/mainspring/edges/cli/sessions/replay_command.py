"""`mainspring replay` and `mainspring test record`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, SessionArgument
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import Screen, diff_style, plural, print_note
from mainspring.edges.cli.render.renderer import TerminalRenderer
from mainspring.edges.cli.render.subagent_tree import SubagentTree
from mainspring.edges.cli.run.run_command import EXIT_STATUS, FAILED, INTERRUPTED, print_end
from mainspring.edges.cli.run.session_runner import UserLeft, print_status, run_interruptible
from mainspring.edges.cli.session_lookup import find_session, open_existing_log, require_store
from mainspring.edges.cli.sessions.log_maintenance import export
from mainspring.runtime.session.run_result import RunResult
from mainspring.runtime.session.session import Session
from mainspring.runtime.session.session_summary import summarize_session
from mainspring.testing import replay as replaying
from mainspring.testing.branch import BranchChange, branch
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.runtime_assembly import open_runtime

_TEST_TEMPLATE = '''\
"""A recorded session, run again offline. `mainspring test record` wrote this."""

from pathlib import Path

from mainspring.testing.replay import replay_file


def test_{name}_goes_as_it_went():
    replay_file(Path(__file__).with_name("{name}.jsonl")).check()
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    start: Annotated[
        int | None,
        typer.Option("--from", min=1, metavar="N", help="Copy the events up to N unchanged."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Continue with this model at the first difference."),
    ] = None
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Use this as the first message from there on.")
    ] = None


class ReplayView(Struct, frozen=True, kw_only=True):
    session_id: str
    ok: bool
    calls: int
    call: int | None
    """The first call that differs."""
    what: str | None
    diff: tuple[str, ...]


async def replay(
    settings: Settings,
    *,
    session: SessionArgument,
    options: ReplayOptions,
    json: JsonOption = False,
) -> int:
    """Replay a session without calling its model. Tools do not run either. Exit status 1 at the
    first difference; with --model or --prompt, a fork continues from there."""
    if options.model is not None or options.prompt is not None:
        return await _branch_session(settings, session, options)
    async with open_existing_log(settings) as log, open_model_registry(settings) as registry:
        row = await find_session(settings, log, session)
        result = await replaying.replay(
            log, row.id, start=options.start, facts=_facts_or_default(registry.facts)
        )
    screen = Screen(settings)
    if json:
        screen.json(_replay_view(result))
    else:
        _print_replay(screen, result)
    return 0 if result.ok else 1


def _facts_or_default(facts: replaying.Facts) -> replaying.Facts:
    """Facts of this folder's catalog; the usual ones for a model that is no longer in it."""

    def look_up(name: str) -> replaying.ModelFacts:
        try:
            return facts(name)
        except InvalidInput:
            return replaying.catalog_facts(name)

    return look_up


def _replay_view(result: replaying.ReplayResult) -> ReplayView:
    divergence = result.divergence
    return ReplayView(
        session_id=result.session_id,
        ok=result.ok,
        calls=result.calls,
        call=None if divergence is None else divergence.call,
        what=None if divergence is None else divergence.what,
        diff=() if divergence is None else divergence.diff,
    )


def _print_replay(screen: Screen, result: replaying.ReplayResult) -> None:
    name = result.session_id if screen.width is None else short_id(result.session_id)
    calls = plural(result.calls, "call")
    if result.is_imported and result.ok and not result.calls:
        screen.line(("imported ", ""), (name, "bold"), ("  nothing to replay", "dim"))
        return
    if result.divergence is None:
        screen.line(("identical ", "green"), (name, "bold"), (f"  {calls} of the model", "dim"))
        return
    divergence = result.divergence
    screen.line(("differs ", "bold red"), (name, "bold"), (f"  at call {divergence.call}", ""))
    screen.paragraph((divergence.what, ""), indent=2)
    for line in divergence.diff:
        screen.line((f"  {line}", diff_style(line) or "dim"))


async def _branch_session(settings: Settings, id_or_part: str, options: ReplayOptions) -> int:
    require_store(settings)
    notes = Screen(settings, stderr=True)
    async with open_runtime(settings) as runtime:
        session = await find_session(settings, runtime.log, id_or_part)
        change = BranchChange(model=options.model, prompt=options.prompt, start=options.start)
        branched = await branch(runtime, session.id, change)
        text = f"forked at event {branched.at}; {branched.session.agent.model} answers,"
        notes.paragraph((f"{text} tools do not run: their recorded results are used", "dim"))
        status = await _run_branch(settings, branched.session) if branched.is_open else 0
        for message in branched.messages:
            if status not in (0, FAILED):
                break
            await branched.session.send(message)
            status = await _run_branch(settings, branched.session)
    return status


async def _run_branch(settings: Settings, session: Session) -> int:
    notes = Screen(settings, stderr=True)
    row = await session.log.session(session.id)
    renderer = TerminalRenderer(
        settings, subagents=SubagentTree.of(await session.events(), row.thread_id)
    )
    result = await run_interruptible(
        session, emit=renderer.delta, tell=renderer.event, say=renderer.note
    )
    renderer.close()
    match result:
        case RunResult():
            await print_end(notes, session, result)
            print_status(notes, result)
            return EXIT_STATUS.get(result.reason, FAILED)
        case UserLeft():
            return INTERRUPTED
        case None:
            return 0


test = command_group()


@command(test)
async def record(
    settings: Settings,
    *,
    session: SessionArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="The folder for the test.")
    ] = "tests/replays",
) -> int:
    """Write a session and a pytest file that replays it."""
    async with open_existing_log(settings) as log:
        row = await find_session(settings, log, session)
        name = _test_name((await summarize_session(log, row)).title or "", row.id)
    folder = Path(settings.folder) / output
    try:
        folder.mkdir(parents=True, exist_ok=True)
        test = folder / f"test_{name}.py"
        await export(settings, session=row.id, output=f"{output}/{name}.jsonl")
        test.write_text(_TEST_TEMPLATE.format(name=name), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{output}: {error.strerror or error}") from error
    screen = Screen(settings)
    screen.line(("wrote ", ""), (f"{output}/test_{name}.py", "bold"))
    print_note(settings, f"run it: pytest {output}/test_{name}.py")
    return 0


def _test_name(title: str, session_id: str) -> str:
    words = re.findall(r"[a-z0-9]+", title.lower())[:5]
    return "_".join([*words, short_id(session_id)])
