"""One session run before somebody's eyes: the agent, the screen, and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from mainspring.config import Settings
from mainspring.core import error_table
from mainspring.core.catalog import ModelFacts
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.model import Delta
from mainspring.edges.cli.approving import is_somebody_there
from mainspring.edges.cli.echo import echo_paused
from mainspring.edges.cli.gist import short
from mainspring.edges.cli.render import Screen, counted, dollars, token_count
from mainspring.edges.cli.seen_warnings import new_warnings
from mainspring.edges.cli.sessions import find_session, require_store
from mainspring.harness.context.anatomy import cached_share
from mainspring.harness.limits import prompt_tokens
from mainspring.log.background import unwrapped
from mainspring.runtime.agent import Agent
from mainspring.runtime.folder.reading import AgentFolder
from mainspring.runtime.outline import Outline, outline
from mainspring.runtime.sessions import Result, Runtime, Session
from mainspring.wiring.agents import Wanted, open_agent, origin
from mainspring.wiring.models import OFFLINE, model_gone, scripts_of
from mainspring.wiring.runtime import open_runtime
from mainspring.wiring.settings_commands import with_key_helper
from mainspring.wiring.wish import Wish

OFFLINE_LABEL = "this is the offline demonstration model; --model or a key brings a real one"
NO_MODEL = (
    "no model is set up, so this is the offline demonstration model. For a real one:",
    "  export ANTHROPIC_API_KEY=...     or OPENAI_API_KEY, GEMINI_API_KEY",
    "  --model ollama:NAME              a model that runs on this machine; vllm:, lmstudio: too",
    "  mainspring models ls             what there is, and which keys are set",
)
ASSUMED_LABEL = (
    "warning: {} is not in the catalogue: a window of {:,} tokens and a high price are assumed;"
    " .mainspring/models.toml can say more"
)
SCRIPT_LABEL = "{} answers, a script; what it does is real. --model brings a real model"


@dataclass(frozen=True, slots=True)
class Left:
    """The user did not wait for the end."""


class Notices:
    """Warnings that come up while a session is opened and run."""

    def __init__(self, notes: Screen) -> None:
        self._show: Callable[[str, str], None] = lambda words, style: notes.whole((words, style))

    def warn(self, warning: str) -> None:
        self._show(f"warning: {warning}", "yellow")

    @contextmanager
    def shown_by(self, show: Callable[[str, str], None]) -> Generator[None]:
        """While a turn is shown, whoever shows it knows where a line can be put."""
        before, self._show = self._show, show
        try:
            yield
        finally:
            self._show = before


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    runtime: Runtime
    notices: Notices
    agent: Agent
    session: Session | None
    """The one to go on with."""
    outline: Outline | None
    """How that one stood."""
    origin: Mapping[str, str] | None

    async def start(self) -> Session:
        """A new session, which nobody has said anything to."""
        return await self.runtime.start(self.agent, metadata=self.origin)


_SECOND_PRESS_SECONDS = 5.0
"""A press of Ctrl-C after that is a first one again."""


@asynccontextmanager
async def open_stage(
    settings: Settings, wanted: Wanted, resume: str | None
) -> AsyncGenerator[Stage, None]:
    """Everything that can be wrong with an agent or its model is found before a session begins."""
    if resume is not None:
        require_store(settings)
    notes = Screen(settings, stderr=True)
    settings = await with_key_helper(settings, Path(settings.folder, wanted.workspace or "."))
    notices = Notices(notes)
    wish = Wish(
        workspace=Path(settings.folder, wanted.workspace) if wanted.workspace else None,
        agent=Path(settings.folder, wanted.folder) if wanted.folder else None,
        mode=wanted.mode,
        allow_protected=wanted.allow_protected,
        is_attended=(is_attended := is_somebody_there()),
        is_headless=not is_attended,
        is_unsandboxed=wanted.is_unsandboxed,
        warn=notices.warn,
    )
    async with open_runtime(settings, wish=wish) as runtime:
        row = None if resume is None else await find_session(runtime.log, resume)
        recorded = None if row is None else await outline(runtime.log, row)
        opened = partial(open_agent, settings, wanted, recorded, facts=runtime.models.facts)
        found = await anyio.to_thread.run_sync(opened)
        agent = found.agent
        try:
            scripts = await anyio.to_thread.run_sync(scripts_of, agent.model, found.folder)
            for name, script in scripts.items():
                runtime.models.put(name, script)
                notes.whole((SCRIPT_LABEL.format(name), "yellow"))
            runtime.models.open(agent.model)
        except InvalidInput as error:
            if row is None or wanted.model is not None:
                raise
            raise model_gone(error, model=agent.model, session_id=row.id) from error
        _warn_if_assumed(notes, runtime.models.facts(agent.model))
        await _show_warnings(notes, Path(settings.home), found)
        await _warn_if_expired(notes, Path(settings.home), runtime.models.facts(agent.model))
        if wanted.folder is not None and not found.is_described:
            notes.whole((f"warning: {wanted.folder} has no instruction files", "yellow"))
        if runtime.models.facts(agent.model).id == OFFLINE:
            is_chosen = wanted.model or settings.model or found.manifest.model or recorded
            for line in (OFFLINE_LABEL,) if is_chosen else NO_MODEL:
                notes.whole((line, "yellow"))
        yield Stage(
            runtime=runtime,
            notices=notices,
            agent=agent,
            session=None if row is None else await runtime.resume(agent, row.id),
            outline=recorded,
            origin=origin(settings, wanted),
        )


def _warn_if_assumed(notes: Screen, facts: ModelFacts) -> None:
    if facts.is_assumed and facts.price.input:
        notes.whole((ASSUMED_LABEL.format(facts.id, facts.window), "yellow"))


async def _warn_if_expired(notes: Screen, home: Path, facts: ModelFacts) -> None:
    """Once for each user and model."""
    if not facts.price.expired:
        return
    entry = error_table.PRICE_EXPIRED
    warning = entry.message.format(model=facts.id, date=facts.price.expired)
    place = Path("prices") / facts.id
    if await anyio.to_thread.run_sync(new_warnings, home, place, [warning]):
        notes.whole((f"warning: {warning}", "yellow"))
        notes.whole((f"hint: {entry.fix[0]}", "dim"))


async def _show_warnings(notes: Screen, home: Path, found: AgentFolder) -> None:
    warnings = await anyio.to_thread.run_sync(new_warnings, home, found.folder, found.warnings)
    for warning in warnings:
        notes.whole((f"warning: {warning}", "yellow"))
    if warnings:
        notes.whole(("shown once; `mainspring validate` shows them again", "dim"))


async def watched(
    session: Session,
    *,
    emit: Callable[[Delta], None],
    tell: Callable[[Event], None],
    say: Callable[[str], None],
) -> Result | Left | None:
    """Run the session. Ctrl-C interrupts it; a second one soon after leaves it where it is."""
    result: Result | Left | None = Left()
    with (
        anyio.open_signal_receiver(signal.SIGINT) as presses,
        echo_paused() as resume_echo,
        unwrapped(),
    ):
        async with anyio.create_task_group() as group:

            async def heed() -> None:
                is_leaving = False
                while not is_leaving:
                    await anext(aiter(presses))
                    say("interrupting; Ctrl-C again leaves at once")
                    group.start_soon(session.interrupt)  # it may take its time
                    with anyio.move_on_after(_SECOND_PRESS_SECONDS):
                        await anext(aiter(presses))
                        is_leaving = True
                say("leaving")
                resume_echo()
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # a third one ends the process
                group.cancel_scope.cancel()

            group.start_soon(heed)
            result = await session.run(emit, tell=tell)
            group.cancel_scope.cancel()
    return result


def tell_status(notes: Screen, result: Result, *, command: str = "") -> None:
    """What it took, and the command that goes on with it; in one line if there is room."""
    share = cached_share(result.usage)
    cached = "" if not share else f" ({share:.0%} cached)"
    name = result.session_id if notes.width is None else short(result.session_id)
    status = " · ".join(
        (
            counted(result.turns, "turn"),
            f"{token_count(prompt_tokens(result.usage))} in{cached},"
            f" {token_count(result.usage.output_tokens)} out",
            dollars(result.cost_usd),
            f"session {name}",
        )
    )
    hint = f"go on: {command} --resume {name}" if command else ""
    whole = f"{status} · {hint}" if hint else status
    if notes.width is None or len(whole) <= notes.width:
        notes.whole((whole, "dim"))
        return
    notes.whole((status, "dim"))
    notes.whole((hint, "dim"))
