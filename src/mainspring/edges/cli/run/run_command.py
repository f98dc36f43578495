"""`mainspring run`: one prompt, run to its end and printed as it happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from msgspec import Struct

from mainspring import error_table
from mainspring.config import Settings
from mainspring.core.envelope import Event, encode_line
from mainspring.core.errors import InvalidInput, LeaseHeld
from mainspring.core.events import Usage
from mainspring.core.lazy_module import LazyModule
from mainspring.core.tagged_text import without_tags
from mainspring.edges.cli.render.printing import Screen, dollars, plural, print_note
from mainspring.edges.cli.render.renderer import TerminalRenderer, key_argument
from mainspring.edges.cli.render.run_activity import RunActivity
from mainspring.edges.cli.render.subagent_tree import SubagentTree
from mainspring.edges.cli.run.approval_prompt import ApprovalPrompt, caller_path, is_interactive
from mainspring.edges.cli.run.run_arguments import OutcomeArguments, PrintArguments, RunArguments
from mainspring.edges.cli.run.send import reject_slash_command, send_message
from mainspring.edges.cli.run.session_runner import (
    Notices,
    SessionRunner,
    UserLeft,
    open_chosen_session,
    print_status,
    run_interruptible,
)
from mainspring.edges.cli.run.terminal_input import Keyboard, is_piped, read_piped
from mainspring.harness.event_sink import ignore_event
from mainspring.harness.outcomes import GradingEstimate, estimate_grading
from mainspring.harness.state.outcome_state import DEFAULT_ITERATIONS, outcome_definition
from mainspring.harness.stop_reasons import EndReason
from mainspring.log.task_groups import run_in_background
from mainspring.runtime.session.run_result import RunResult
from mainspring.runtime.session.session import Session, ignore_delta
from mainspring.runtime.session.session_summary import pending_calls
from mainspring.runtime.slash_commands import mode_of

if TYPE_CHECKING:
    from mainspring.edges.cli.run import print_mode
else:
    print_mode = LazyModule("mainspring.edges.cli.run.print_mode")  # only scripts use it

DONE, FAILED, WAITS, LIMIT, INTERRUPTED = 0, 1, 3, 4, 130  # statuses; 130 is a shell's after SIGINT
EXIT_STATUS: dict[EndReason, int] = {
    "completed": DONE,
    "compacted": DONE,
    "requires_action": WAITS,
    "max_turns": LIMIT,
    "budget_reached": LIMIT,
    "interrupted_streaming": INTERRUPTED,
    "interrupted_tools": INTERRUPTED,
}
"""The exit status by the reason why the run ended; any other reason is a failure."""
_CARRY_OUT_HINT = 'mainspring run --resume {} --mode default "go"'
_TICK_SECONDS = 1.0
"""How often the line that shows what a session does is drawn again."""
_NOTICE_SECONDS = 10.0
"""After a shorter run the user is still there."""
_PIPE_SECONDS = 3.0
"""How long to wait for the first data of a pipe, if there is also a prompt."""
_RESUME_HINT = "continue: mainspring run --resume {}"


class ResultView(Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """The last line that `--json` prints."""

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
    settings: Settings,
    *,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROMPT]", help="What to do; without it, or with -, standard input is read."
        ),
    ] = None,
    arguments: RunArguments,
    printing: PrintArguments,
    outcome: OutcomeArguments,
    json: Annotated[
        bool, typer.Option("--json", help="Print events as JSON lines, then the result.")
    ] = False,
) -> int:
    """Run an agent until it is done. Exit status: 0 done, 3 waiting for an answer, 4 a limit
    was reached, 1 failed, 130 interrupted."""
    resumed = arguments.session()
    printing.check(prompt, json=json)
    if printing.is_printed:
        return await print_mode.run_printed(settings, arguments, printing, outcome, prompt)
    if prompt is None and resumed is None and sys.stdin.isatty():
        raise typer.BadParameter("write what to do, or pipe it in", param_hint="PROMPT")
    text = await read_prompt(prompt, required=resumed is None)
    async with open_chosen_session(settings, arguments, runs_at_once=True) as (runner, _):
        outcome.check(text, is_defined=runner.has_new_outcome)
        if text is not None:
            reject_slash_command(runner.agent, text)
        session = runner.session or await runner.start()
        own = set[str]()
        if text is not None:
            own.add(await submit_prompt(settings, runner, outcome, session, text))
        try:
            if json:
                status = await _run_as_json(settings, runner, session)
            else:
                result = await run_attended(settings, session, own=own, notices=runner.notices)
                status = await _print_result(settings, runner, session, result)
            await session.end()
            return status
        except LeaseHeld:
            if not own:
                raise
        return await _report_delivered(settings, session, json=json)


async def submit_prompt(
    settings: Settings,
    runner: SessionRunner,
    arguments: OutcomeArguments,
    session: Session,
    text: str,
) -> str:
    """Send a prompt as a message; or as an outcome, if the command line or, for a new session, the
    agent has a rubric. Returns the event id."""
    rubric = arguments.rubric(settings)
    defined = runner.outcome if runner.session is None else None
    if rubric is None and defined is not None and defined.rubric.strip():
        rubric = defined.rubric
        text = f"{text}\n\n{defined.description}".strip()
    if rubric is None:
        return await send_message(settings, runner.agent, session, text)
    iterations = arguments.max_iterations or (None if defined is None else defined.max_iterations)
    outcome = outcome_definition(text, rubric, iterations)
    facts = runner.runtime.models.facts(runner.runtime.models.resolve(runner.agent.model))
    estimate = estimate_grading(rubric, outcome.max_iterations or DEFAULT_ITERATIONS, facts)
    print_note(settings, _estimate_text(estimate))
    return (await session.submit(outcome)).event_id


def _estimate_text(estimate: GradingEstimate) -> str:
    judged, commands = estimate.judged, estimate.commands
    run = f" and {plural(commands, 'command')}" if commands else ""
    cost = f"about {dollars(estimate.cost_usd)}" if judged else "nothing"
    gradings = plural(estimate.iterations, "grading")
    criteria = "1 criterion" if judged == 1 else f"{judged} criteria"
    return f"outcome: {criteria}{run}, up to {gradings}; grading costs {cost}"


async def _report_delivered(settings: Settings, session: Session, *, json: bool) -> int:
    """Tell the user that another process runs the session and will answer the message."""
    if json:
        Screen(settings).json({"type": "delivered", "session_id": session.id})
    notes = Screen(settings, stderr=True)
    name = notes.id_text(session.id)
    text = f"another process runs session {name}: it will answer your message"
    notes.paragraph((text, ""))
    notes.paragraph((f"watch it: mainspring log follow {name}", "dim"))
    return DONE


async def run_attended(
    settings: Settings,
    session: Session,
    *,
    own: set[str],
    notices: Notices,
    keyboard: Keyboard | None = None,
    watch: Callable[[Event], None] = ignore_event,
) -> RunResult | UserLeft | None:
    """Run a session. At a terminal, ask the user about pending calls and continue. `watch` gets
    each event after it was shown."""
    keyboard = keyboard or Keyboard(settings)
    approver = ApprovalPrompt(settings, keyboard, Screen(settings, stderr=True))
    projection = await session.projection()
    tree = SubagentTree(projection.main_thread_id, projection)
    activity = RunActivity(projection.main_thread_id)
    renderer = TerminalRenderer(
        settings, own=own, subagents=tree, area=keyboard.area, activity=activity
    )
    hint = "Esc interrupts" if keyboard.area is not None else "Ctrl-C interrupts"

    async def tick() -> None:
        while True:
            await anyio.sleep(_TICK_SECONDS)
            renderer.tick(hint)

    def show(event: Event) -> None:
        renderer.event(event)
        watch(event)

    while True:
        begun = time.monotonic()
        for pending in pending_calls(await session.projection()):
            renderer.add_asked_call(pending.call.id, pending.call.name, pending.call.input)
        try:
            with notices.redirected_to(renderer.note):
                async with run_in_background(tick):
                    result = await run_interruptible(
                        session,
                        emit=renderer.delta,
                        tell=show,
                        say=renderer.note,
                        keyboard=keyboard,
                    )
        finally:
            renderer.close()
        is_over = _is_over(result)
        _notify(keyboard, begun, is_over=is_over)
        if is_over:
            return result
        if not is_interactive() or not await approver.ask_all(session):
            return result


def _notify(keyboard: Keyboard, begun: float, *, is_over: bool) -> None:
    if time.monotonic() - begun >= _NOTICE_SECONDS:
        keyboard.notify("Mainspring is done" if is_over else "Mainspring waits for you")


def _is_over(result: RunResult | UserLeft | None) -> bool:
    """Whether no answer of the user would let the run continue."""
    return result is not None and (
        isinstance(result, UserLeft) or result.reason != "requires_action"
    )


async def read_prompt(prompt: str | None, *, required: bool) -> str | None:
    """The prompt from the command line, from standard input, or from both."""
    if prompt == "-" or (prompt is None and required):
        prompt = await anyio.to_thread.run_sync(read_piped, None, abandon_on_cancel=True)
    elif prompt is not None and is_piped():
        piped = await anyio.to_thread.run_sync(read_piped, _PIPE_SECONDS, abandon_on_cancel=True)
        material = without_tags(piped, "stdin") if piped else ""
        prompt = f"{prompt}\n\n<stdin>\n{material}\n</stdin>" if piped else prompt
    if required and not prompt:
        raise error_table.NOTHING_ASKED.error(InvalidInput)
    return prompt or None


async def _run_as_json(settings: Settings, runner: SessionRunner, session: Session) -> int:
    screen, notes = Screen(settings), Screen(settings, stderr=True)

    def print_event(event: Event) -> None:
        screen.json_line(encode_line(event))

    if runner.session is None:
        for event in await session.events():
            print_event(event)
    result = await run_interruptible(
        session,
        emit=ignore_delta,
        tell=print_event,
        say=lambda text: notes.paragraph((text, "dim")),
    )
    match result:
        case RunResult():
            status = EXIT_STATUS.get(result.reason, FAILED)
            screen.json(_result_view(result, status))
            return status
        case UserLeft():
            return INTERRUPTED
        case None:
            return WAITS if _is_waiting(runner) else DONE


def _result_view(result: RunResult, status: int) -> ResultView:
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


async def _print_result(
    settings: Settings, runner: SessionRunner, session: Session, result: RunResult | UserLeft | None
) -> int:
    notes = Screen(settings, stderr=True)
    name = notes.id_text(session.id)
    match result:
        case None:
            return await _print_idle(notes, runner, session)
        case UserLeft():
            notes.paragraph((f"left; session {name} can be resumed", "yellow"))
            notes.paragraph((_RESUME_HINT.format(name), "dim"))
            return INTERRUPTED
        case RunResult():
            await print_end(notes, session, result)
            print_status(notes, result, command="mainspring run")
            if result.reason == "completed" and await mode_of(session.log, session.id) == "plan":
                notes.paragraph((f"carry the plan out: {_CARRY_OUT_HINT.format(name)}", "dim"))
            return EXIT_STATUS.get(result.reason, FAILED)


def _is_waiting(runner: SessionRunner) -> bool:
    return runner.session_summary is not None and runner.session_summary.status == "requires_action"


async def _print_idle(notes: Screen, runner: SessionRunner, session: Session) -> int:
    if _is_waiting(runner):
        await _print_waiting(notes, session)
        return WAITS
    before = runner.session_summary
    reason = f" ({before.reason})" if before is not None and before.reason else ""
    state = f"session {notes.id_text(session.id)} is idle{reason}"
    notes.paragraph((f"nothing to do: {state}; give a prompt to continue", "dim"))
    return DONE


async def print_end(notes: Screen, session: Session, result: RunResult) -> None:
    """Print why a run ended early, and which calls wait for the user."""
    notes.paragraph(("", ""))
    match result.reason:
        case "completed" | "compacted":
            return
        case "requires_action":
            await _print_waiting(notes, session)
        case "interrupted_streaming" | "interrupted_tools":
            notes.paragraph(("interrupted", "yellow"))
        case "model_error" | "prompt_too_long":  # the error was printed when it happened
            return
        case reason:
            detail = f": {result.detail}" if result.detail else ""
            notes.paragraph((f"{reason.replace('_', ' ')}{detail}", "bold red"))
            for fix in _fixes(reason):
                hint = fix.format(session=notes.id_text(session.id))
                notes.paragraph((f"hint: {hint}", "dim"))


def _fixes(reason: EndReason) -> tuple[str, ...]:
    return error_table.LIMIT_REACHED.fix if EXIT_STATUS.get(reason) == LIMIT else ()


async def _print_waiting(notes: Screen, session: Session) -> None:
    for pending in pending_calls(await session.projection()):
        call = pending.call
        about = f" {key_argument(call.input)}"
        notes.line(("waits ", "bold yellow"), (caller_path(pending), "bold"), (about, ""))
        form = " --form '{...}'" if call.is_suspended else ""
        target = f"{notes.id_text(session.id)} {notes.id_text(call.id)}"
        notes.paragraph((f"  mainspring sessions answer {target} allow|deny{form}", ""))
