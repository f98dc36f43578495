"""Opens an agent and runs one session at the terminal: warnings, Ctrl-C and the closing status
line.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from mainspring import error_table
from mainspring.capabilities.providers.model_registry import model_unavailable
from mainspring.capabilities.providers.script_file import OFFLINE_MODEL, scripted_models
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.events import PermissionUpdate
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Delta
from mainspring.core.model_facts import ModelFacts
from mainspring.core.sender import Origin
from mainspring.edges.cli.render.printing import Screen, dollars, plural, token_count
from mainspring.edges.cli.run.adopt import find_own
from mainspring.edges.cli.run.approval_prompt import is_interactive
from mainspring.edges.cli.run.run_arguments import RunArguments
from mainspring.edges.cli.run.terminal_input import ESCAPE, Keyboard, interrupts, pause_echo
from mainspring.edges.cli.run.worktree_option import open_worktree, share_repository
from mainspring.edges.cli.session_lookup import require_store
from mainspring.error_table import with_hints
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.harness.context.xray import cached_share
from mainspring.harness.limits import prompt_tokens
from mainspring.log.store import SessionRow
from mainspring.log.task_groups import unwrap_single_error
from mainspring.runtime.adoption import move_session
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder.agent_loader import AgentFolder
from mainspring.runtime.agent_folder.manifest import ManifestOutcome
from mainspring.runtime.memory.memory_mode import with_memory_mode
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.delta_redactor import DeltaRedactor
from mainspring.runtime.session.run_result import OnApproval, RunResult
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.session.session_summary import (
    SessionSummary,
    summarize_session,
    workspace_of,
)
from mainspring.runtime.session.streaming_redactor import BOUNDARIES
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.wiring.agent_selection import agent_selection, with_canary
from mainspring.wiring.runtime_assembly import open_runtime
from mainspring.wiring.settings_files import read_folder_policy, with_key_helper

if TYPE_CHECKING:
    from mainspring.edges.cli.run import model_discovery
else:
    model_discovery = LazyModule(
        "mainspring.edges.cli.run.model_discovery"
    )  # if no model is set up

_SEEN_FOLDER = "seen-warnings"


def new_warnings(home: Path, folder: Path, warnings: Iterable[str]) -> list[str]:
    """The warnings that the last run in this folder did not print. Blocks. They are stored in the
    user's home: programs of a session could put a link into the folder."""
    digests = {_warnings_digest(warning): warning for warning in warnings}
    file = home / FOLDER / _SEEN_FOLDER / _warnings_digest(str(folder))
    try:
        earlier = set((read_bounded(file) or b"").decode("ascii", "replace").split())
        if earlier != set(digests):
            write_atomic(file, "".join(f"{digest}\n" for digest in sorted(digests)).encode())
    except InvalidInput:
        earlier = set[str]()
    return [warning for digest, warning in digests.items() if digest not in earlier]


def _warnings_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


OFFLINE_LABEL = "this is the offline demonstration model; use --model or set a key for a real one"
NO_MODEL = (
    "no model is set up and no server on this machine (Ollama, LM Studio) has one, so this is the"
    " offline demonstration model. For a real one:",
    "  export ANTHROPIC_API_KEY=...     or OPENAI_API_KEY, GEMINI_API_KEY",
    "  --model ollama:NAME              a model that runs on this machine; vllm:, lmstudio: too",
    "  mainspring models ls             the catalog, and which keys are set",
)
ASSUMED_LABEL = (
    "warning: {} is not in the catalog: a window of {:,} tokens and a high price are assumed;"
    " describe it in .mainspring/models.toml"
)
LOCAL_LABEL = "no model is set up; {} runs on this machine and answers. --model names another"
SCRIPT_LABEL = "{} answers: a script, whose tool calls are real. --model names a real model"


@dataclass(frozen=True, slots=True)
class UserLeft:
    """The user left before the end of the run."""


class Notices:
    """Prints warnings that occur while a session is opened and run."""

    def __init__(self, notes: Screen) -> None:
        self._show: Callable[[str, str], None] = lambda words, style: notes.paragraph(
            (words, style)
        )

    def warn(self, warning: str) -> None:
        self._show(f"warning: {warning}", "yellow")

    @contextmanager
    def redirected_to(self, show: Callable[[str, str], None]) -> Generator[None]:
        """Pass warnings to the renderer of a turn, which can print them between its lines."""
        before, self._show = self._show, show
        try:
            yield
        finally:
            self._show = before


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRunner:
    runtime: Runtime
    notices: Notices
    agent: Agent
    session: Session | None
    """The resumed session."""
    session_summary: SessionSummary | None
    """The state of the resumed session when it was opened."""
    loaded_policy: LoadedPolicy
    """The settings files of the folder that it works in."""
    metadata: Mapping[str, str] | None
    """That of new sessions."""
    outcome: ManifestOutcome | None
    """The outcome that new sessions of the agent are graded against."""
    new_id: Callable[[], str] | None = None
    """Gives new sessions ids that belong to this version of the agent."""
    updates: tuple[PermissionUpdate, ...] = ()
    """Rules for each session that is started or resumed."""

    @property
    def has_new_outcome(self) -> bool:
        """Whether a new session is graded against the agent's own rubric."""
        return self.session is None and self.outcome is not None and bool(self.outcome.rubric)

    async def start(self, agent: Agent | None = None, *, origin: Origin | None = None) -> Session:
        """Start a new session without a message; `agent` replaces the agent that was opened."""
        agent = agent or self.agent
        metadata = with_memory_mode(self.metadata or {}, agent.memory)
        session_id = None if self.new_id is None else self.new_id()
        session = await self.runtime.start(
            agent, metadata=metadata or None, origin=origin, session_id=session_id
        )
        return await self._permitted(session)

    async def resume(self, agent: Agent, session_id: str) -> Session:
        return await self._permitted(await self.runtime.resume(agent, session_id))

    async def _permitted(self, session: Session) -> Session:
        if self.updates:
            await session.permit(*self.updates)
        return session


@asynccontextmanager
async def open_chosen_session(
    settings: Settings,
    arguments: RunArguments,
    *,
    unattended: bool = False,
    runs_at_once: bool = False,
) -> AsyncGenerator[tuple[SessionRunner, RunOptions], None]:
    """As `open_session_runner`, with the options of the command line: the runner of the session to
    continue, or of a fork of it, or of new ones."""
    settings = arguments.applied_to(settings)
    resumed, updates = arguments.session(), arguments.permission_updates()
    options = await open_worktree(settings, arguments)
    async with open_session_runner(
        settings, options, resumed, unattended=unattended, runs_at_once=runs_at_once
    ) as runner:
        runner = replace(runner, updates=updates)
        session = runner.session
        if session is not None:
            forked = await session.fork() if arguments.fork_session else session
            runner = replace(runner, session=await runner.resume(runner.agent, forked.id))
        yield runner, options


_SECOND_PRESS_SECONDS = 5.0
"""A press of Ctrl-C after this time counts as the first one again."""


@asynccontextmanager
async def open_session_runner(  # parameters: how a command asks, and when it runs
    settings: Settings,
    options: RunOptions,
    resume: str | None,
    *,
    answered_later: bool = False,
    unattended: bool = False,
    runs_at_once: bool = False,
    change_agent: Callable[[Agent], Agent] = lambda agent: agent,
) -> AsyncGenerator[SessionRunner, None]:
    """Opens an agent and its model; reports all problems with them before a session begins.

    `answered_later`: calls that need a person wait for an answer from elsewhere.
    `unattended`: nobody is asked, even at a terminal.
    `runs_at_once`: the session runs at once, so its first run uses the settings files that are read
    here.
    `change_agent`: applied to the agent that was opened.
    """
    if resume is not None:
        require_store(settings)
    notes = Screen(settings, stderr=True)
    folder = Path(settings.folder, options.workspace or ".")
    await anyio.to_thread.run_sync(_require_folder, folder)
    loaded_policy = await read_folder_policy(settings, folder)
    settings = with_key_helper(settings, loaded_policy)
    agents = agent_selection(settings)
    new_id = None
    if resume is None:
        options, new_id = await anyio.to_thread.run_sync(with_canary, settings, options)
    notices = Notices(notes)
    is_attended = is_interactive() and not answered_later and not unattended
    at_terminal = replace(
        options,
        workspace=options.workspace and Path(settings.folder, options.workspace),
        agent=options.agent and Path(settings.folder, options.agent),
        is_attended=is_attended,
        is_headless=not is_attended and not answered_later,
        warn=notices.warn,
    )
    reused = loaded_policy if runs_at_once else None
    async with open_runtime(settings, options=at_terminal, loaded=reused) as runtime:
        row = await _find_resumed(settings, runtime, resume, at_terminal, notices)
        recorded = None if row is None else await _read_resumed(runtime, row, at_terminal)
        read_agent = partial(
            agents.open, options, recorded, facts=runtime.models.facts, loaded=loaded_policy
        )
        loaded = await anyio.to_thread.run_sync(read_agent)
        agent = change_agent(loaded.agent)
        is_chosen = options.model or settings.model or loaded.agent_manifest.model or recorded
        if not is_chosen:
            agent = await _with_local_model(settings, notes, agent, runtime.models.facts)
        if row is not None or options.workspace is not None:  # it may be in a worktree
            await share_repository(settings, runtime, row and row.id)
        try:
            await _open_model(runtime, notes, agent.model, loaded.folder)
        except InvalidInput as error:
            if row is None or options.model is not None:
                raise
            raise model_unavailable(error, model=agent.model, session_id=row.id) from error
        await _print_new_warnings(notes, Path(settings.home), loaded)
        if options.agent is not None and not loaded.is_described:
            notes.paragraph((f"warning: {options.agent} has no instruction files", "yellow"))
        await _print_model_warnings(
            notes,
            Path(settings.home),
            runtime.models.facts(agent.model),
            is_chosen=bool(is_chosen),
        )
        yield SessionRunner(
            runtime=runtime,
            notices=notices,
            agent=agent,
            session=None if row is None else await runtime.resume(agent, row.id),
            session_summary=recorded,
            loaded_policy=loaded_policy,
            metadata=agents.metadata(options),
            outcome=loaded.agent_manifest.outcome,
            new_id=new_id,
        )


def _require_folder(folder: Path) -> None:
    """Raises: InvalidInput."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder to work in")


def _is_same_place(one: Path, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


async def _find_resumed(
    settings: Settings, runtime: Runtime, resume: str | None, options: RunOptions, notices: Notices
) -> SessionRow | None:
    """The session that continues. If its project's folder was moved, with its store, it continues
    in the new place, by the rules and hooks that count there.

    Raises: SessionNotFound, InvalidInput, ForeignSession.
    """
    if resume is None:
        return None
    row = await find_own(settings, runtime.log, resume)
    before = await workspace_of(runtime.log, row.id)
    home = Path(settings.store).parent
    if before is None or home.name != FOLDER or is_postgres(settings.store):
        return row
    here = options.workspace or home.parent
    if await anyio.to_thread.run_sync(os.path.lexists, before) or not here.is_dir():
        return row
    await move_session(runtime.log, row.id, workspace=str(here))
    notices.warn(f"{before} does not exist any more: the session continues in {here}, by its rules")
    return await runtime.log.session(row.id)


async def _read_resumed(runtime: Runtime, row: SessionRow, options: RunOptions) -> SessionSummary:
    """The state of a session that continues.

    Raises:
        InvalidInput: an option names another workspace or agent than the session's own, whose
            rules, hooks and instructions are pinned in its log.
    """
    recorded = await summarize_session(runtime.log, row)
    workspace = await workspace_of(runtime.log, row.id)
    for option, chosen, own in (
        ("--workspace", options.workspace, workspace),
        ("--agent", options.agent, recorded.folder or workspace),
    ):
        if chosen is None or own is None:
            continue
        if not await anyio.to_thread.run_sync(_is_same_place, chosen, own):
            problem = f"{option} {chosen}: session {row.id} has {own} and keeps it"
            raise with_hints(InvalidInput(problem), "omit the option, or begin a new session")
    return recorded


async def _open_model(runtime: Runtime, notes: Screen, model: str, folder: Path) -> None:
    """Open the model, or the script of that name in the agent's folder.

    Raises: InvalidInput.
    """
    scripts = await anyio.to_thread.run_sync(scripted_models, model, folder)
    for name, script in scripts.items():
        runtime.models.put(name, script)
        notes.paragraph((SCRIPT_LABEL.format(name), "yellow"))
    runtime.models.open(model)
    runtime.models.connect_early(model)  # connects during the set-up


async def _with_local_model(
    settings: Settings, notes: Screen, agent: Agent, facts: Callable[[str], ModelFacts]
) -> Agent:
    """Use a model that runs on this machine, if there is one and no other model."""
    if facts(agent.model).id != OFFLINE_MODEL:
        return agent
    if (model := await model_discovery.find_local_model(settings)) is None:
        return agent
    notes.paragraph((LOCAL_LABEL.format(model), "yellow"))
    return replace(agent, model=model)


async def _print_model_warnings(
    notes: Screen, home: Path, facts: ModelFacts, *, is_chosen: bool
) -> None:
    """An expired price is reported once for each user and model."""
    if facts.is_assumed and facts.price.input:
        notes.paragraph((ASSUMED_LABEL.format(facts.id, facts.window), "yellow"))
    if facts.id == OFFLINE_MODEL:
        for line in (OFFLINE_LABEL,) if is_chosen else NO_MODEL:
            notes.paragraph((line, "yellow"))
    if not facts.price.expired:
        return
    entry = error_table.PRICE_EXPIRED
    warning = entry.message.format(model=facts.id, date=facts.price.expired)
    place = Path("prices") / facts.id
    if await anyio.to_thread.run_sync(new_warnings, home, place, [warning]):
        notes.paragraph((f"warning: {warning}", "yellow"))
        notes.paragraph((f"hint: {entry.fix[0]}", "dim"))


async def _print_new_warnings(notes: Screen, home: Path, loaded: AgentFolder) -> None:
    warnings = await anyio.to_thread.run_sync(new_warnings, home, loaded.folder, loaded.warnings)
    for warning in warnings:
        notes.paragraph((f"warning: {warning}", "yellow"))
    if warnings:
        notes.paragraph(("shown once; `mainspring validate` shows them again", "dim"))


async def run_interruptible(
    session: Session,
    *,
    emit: Callable[[Delta], None],
    tell: Callable[[Event], None],
    say: Callable[[str], None],
    on_approval: OnApproval | None = None,
    keyboard: Keyboard | None = None,
) -> RunResult | UserLeft | None:
    """Run the session. Ctrl-C, or Esc in chat, interrupts it; Ctrl-C soon after that leaves at
    once. `emit` gets deltas without secrets."""
    result: RunResult | UserLeft | None = UserLeft()
    scrub = session.log.scrub
    passages = scrub.passages(BOUNDARIES) if isinstance(scrub, Scrubber) else ()
    redactor = DeltaRedactor(emit, tell, scrub, passages)
    with (
        interrupts(keyboard) as presses,
        pause_echo(keyboard) as resume_echo,
        unwrap_single_error(),
    ):
        async with anyio.create_task_group() as group:

            async def interrupt_on_press() -> None:
                is_leaving = False
                while not is_leaving:
                    await anext(aiter(presses))
                    say("interrupting; Ctrl-C again leaves at once")
                    group.start_soon(session.interrupt)  # it may take a while
                    with anyio.move_on_after(_SECOND_PRESS_SECONDS):
                        while await anext(aiter(presses)) == ESCAPE:
                            pass
                        is_leaving = True
                say("leaving")
                resume_echo()
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # a third one ends the process
                group.cancel_scope.cancel()

            group.start_soon(interrupt_on_press)
            result = await session.run(redactor.delta, tell=redactor.event, on_approval=on_approval)
            redactor.close()
            group.cancel_scope.cancel()
    return result


def print_status(notes: Screen, result: RunResult, *, command: str = "") -> None:
    """Print turns, tokens and cost, and the command that continues; in one line if it fits."""
    share = cached_share(result.usage)
    cached = "" if not share else f" ({share:.0%} cached)"
    name = notes.id_text(result.session_id)
    status = " · ".join(
        (
            plural(result.turns, "turn"),
            f"{token_count(prompt_tokens(result.usage))} in{cached},"
            f" {token_count(result.usage.output_tokens)} out",
            dollars(result.cost_usd),
            f"session {name}",
        )
    )
    hint = f"continue: {command} --resume {name}" if command else ""
    line = f"{status} · {hint}" if hint else status
    if notes.width is None or len(line) <= notes.width:
        notes.paragraph((line, "dim"))
        return
    notes.paragraph((status, "dim"))
    notes.paragraph((hint, "dim"))
