"""What `mainspring chat` does: messages and replies in turn, until somebody leaves."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from mainspring import __version__
from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core.errors import InvalidInput, MainspringError
from mainspring.edges.cli.gist import short
from mainspring.edges.cli.keyboard import Keyboard
from mainspring.edges.cli.perform import hints_for
from mainspring.edges.cli.render import Screen, counted
from mainspring.edges.cli.running import attended, report_end
from mainspring.edges.cli.saying import is_brought, say
from mainspring.edges.cli.slash import show, show_help, show_unknown
from mainspring.edges.cli.stage import Left, Stage, open_stage, tell_status
from mainspring.runtime.commands import (
    At,
    Typed,
    agent_types,
    known,
    perform,
    skills_of,
    typed,
    unescaped,
)
from mainspring.runtime.modes import mode_of
from mainspring.runtime.outline import outline
from mainspring.runtime.replies import Agents, Sent
from mainspring.runtime.sessions import Result, Session
from mainspring.wiring.agents import Wanted, open_agent
from mainspring.wiring.settings_commands import SettingsCommands, read_settings_commands

__all__ = ["Wanted", "chat"]

INTERRUPTED = 130
_BEGINNING = ("plan", "mode")
"""Commands that a session can begin with; the others are about one that there is."""


async def chat(settings: Settings, *, wanted: Wanted, resume: str | None) -> int:
    async with open_stage(settings, wanted, resume) as stage:
        keyboard = Keyboard(_history(settings), colour=settings.color)
        keyboard.open()
        try:
            commands = await read_settings_commands(
                settings, Path(settings.folder, wanted.workspace or ".")
            )
            return await _Chat(settings, wanted, stage, keyboard, commands).run()
        finally:
            keyboard.close()


def _history(settings: Settings) -> Path:
    if is_postgres(settings.store):
        return Path(settings.folder) / FOLDER / "chat_history"
    return Path(settings.store).parent / "chat_history"


class _Chat:
    def __init__(
        self,
        settings: Settings,
        wanted: Wanted,
        stage: Stage,
        keyboard: Keyboard,
        commands: SettingsCommands,
    ) -> None:
        self._commands = commands if commands.status_line is not None else None
        self._settings = settings
        self._wanted = wanted
        self._stage = stage
        self._keyboard = keyboard
        self._agent = stage.agent
        self._session: Session | None = stage.session
        self._notes = Screen(settings, stderr=True)
        self._presses = 0
        self._is_mode_told = False
        keyboard.complete(lambda: [f"/{each.name}" for each in known(self._agent)])

    async def run(self) -> int:
        """The exit status, once somebody has left."""
        self._greet()
        status: int | None = None
        if self._session is not None:
            status = await self._guarded(self._turn(self._session, set()))  # what was unfinished
        while status is None:
            await self._show_status()
            status = await self._exchange()
        self._part()
        return status

    async def _show_status(self) -> None:
        """What the command of `statusLine` prints, above the prompt; a failure is told once."""
        if self._commands is None:
            return
        try:
            for line in await self._commands.show_status(await self._about()):
                self._say(line, "dim")
        except InvalidInput as error:
            self._say(f"warning: {error}; it is not run again in this chat", "yellow")
            self._commands = None

    async def _about(self) -> dict[str, object]:
        """What a status line reads of the session, as Claude Code names it."""
        folder = str(Path(self._settings.folder, self._wanted.workspace or "."))
        session, cost = self._session, "0"
        if session is not None:
            stands = await outline(session.log, await session.log.session(session.id))
            cost = str(stands.cost_usd)
        name = self._agent.model
        return {
            "session_id": "" if session is None else session.id,
            "cwd": folder,
            "model": {"id": name, "display_name": name.partition(":")[2] or name},
            "workspace": {"current_dir": folder, "project_dir": folder},
            "version": __version__,
            "cost": {"total_cost_usd": float(cost)},
        }

    async def _exchange(self) -> int | None:
        """One message and what it leads to; an exit status, if the chat is over."""
        try:
            message = self._keyboard.message().strip()
        except EOFError:
            self._say("")
            return 0
        except KeyboardInterrupt:
            self._say("")
            self._presses += 1
            if self._presses == 1:
                self._say("Ctrl-C again, Ctrl-D or /exit leaves", "dim")
            return None if self._presses == 1 else INTERRUPTED
        self._presses = 0
        return await self._take(message) if message else None

    async def _take(self, message: str) -> int | None:
        """What somebody has typed: a command, or words for the agent."""
        command = typed(message)
        if command is None:
            return await self._guarded(self._send(unescaped(message)))
        return await self._guarded(self._command(command, message))

    async def _guarded(self, step: Awaitable[int | None]) -> int | None:
        """What goes wrong is told, and the chat goes on."""
        try:
            return await step
        except MainspringError as error:
            self._say(f"error: {error}", "bold red")
            for hint in hints_for(error):
                self._say(f"hint: {hint}", "dim")
            return None

    def _greet(self) -> None:
        before = self._stage.outline
        if before is not None:
            title = f": {before.title}" if before.title else ""
            self._say(f"session {short(before.id)}, {counted(before.turns, 'turn')}{title}", "dim")
        self._say(f"{self._agent.name} · {self._agent.model} · /help", "dim")

    def _part(self) -> None:
        if self._session is not None:
            self._say(f"go on: mainspring chat --resume {short(self._session.id)}", "dim")

    async def _begun(self) -> Session:
        """The session; a new one, if nobody has said anything yet."""
        if self._session is None:
            runtime = self._stage.runtime
            self._session = await runtime.start(self._agent, metadata=self._stage.origin)
        return self._session

    async def _send(self, message: str) -> int | None:
        session = await self._begun()
        sent = await session.send(message)
        return await self._turn(session, {sent.event_id})

    async def _turn(self, session: Session, own: set[str]) -> int | None:
        """Run it until it waits for words; an exit status, if the chat is over."""
        result = await attended(
            self._settings,
            session,
            own=own,
            notices=self._stage.notices,
            keyboard=self._keyboard,
        )
        if isinstance(result, Left):
            return INTERRUPTED
        if result is not None:
            await report_end(self._notes, session, result)
            tell_status(self._notes, result)
            await self._tell_mode(session, result)
        return None

    async def _tell_mode(self, session: Session, result: Result) -> None:
        """Once: a turn that ends in the mode plan, without a plan, is not a question."""
        if self._is_mode_told or result.reason != "completed":
            return
        if await mode_of(session.log, session.id) == "plan":
            self._say("mode plan: nothing is changed; /mode default leaves it", "dim")
            self._is_mode_told = True

    async def _command(self, command: Typed, message: str) -> int | None:
        match command.name:
            case "exit" | "quit":
                return 0
            case "help" | "":
                show_help(self._notes, known(self._agent))
            case "model":
                await self._change_model(command.arguments)
            case "clear":
                await self._clear()
            case "fork":
                await self._fork()
            case _:
                return await self._perform(command, message)
        return None

    async def _perform(self, command: Typed, message: str) -> int | None:
        """What every client can do, else what the agent brings."""
        built_in = {each.name for each in known(self._agent) if each.kind == "built-in"}
        if command.name not in built_in:
            return await self._call(command, message)
        if self._session is None and command.name not in _BEGINNING:
            self._tell_beforehand(command.name)
            return None
        session = await self._begun()
        window = self._stage.runtime.models.facts(self._agent.model).window
        at = At(
            log=session.log,
            session_id=session.id,
            agent=self._agent,
            sender=self._stage.runtime.sender,
            window=window,
        )
        reply = await perform(at, command.name, command.arguments)
        if reply is not None:
            show(self._notes, reply)
        if isinstance(reply, Sent) and reply.is_work:
            return await self._turn(session, set(reply.event_ids))
        return None

    def _tell_beforehand(self, name: str) -> None:
        """Before there is a session."""
        match name:
            case "agents":
                show(self._notes, Agents(types=agent_types(self._agent), threads=()))
            case "skills":
                show(self._notes, skills_of(self._agent))
            case _:
                self._say("nothing yet", "dim")

    async def _call(self, command: Typed, message: str) -> int | None:
        """A skill or a command of the agent's own."""
        if not is_brought(self._agent, message):
            show_unknown(self._notes, command.name, known(self._agent))
            return None
        session = await self._begun()
        return await self._turn(session, {await say(self._settings, self._agent, session, message)})

    async def _clear(self) -> None:
        """The next message begins a session of the agent as its files are then."""
        facts = self._stage.runtime.models.facts
        opened = partial(open_agent, self._settings, self._wanted, facts=facts)
        found = await anyio.to_thread.run_sync(opened)
        self._agent = replace(found.agent, model=self._agent.model)
        left, self._session = self._session, None
        hint = (
            "" if left is None else f"; the one before: mainspring chat --resume {short(left.id)}"
        )
        self._say(f"a new session begins{hint}", "dim")

    async def _fork(self) -> None:
        if self._session is None:
            self._say("nothing yet", "dim")
            return
        left = self._session
        self._session = await left.fork()
        self._say(
            f"forked: this is session {short(self._session.id)} now; the one before stays as it is:"
            f" mainspring chat --resume {short(left.id)}",
            "dim",
        )

    async def _change_model(self, name: str) -> None:
        if not name:
            self._say(f"{self._agent.model}; /model NAME changes it, `mainspring models ls` lists")
            return
        self._stage.runtime.models.open(name)
        self._agent = replace(self._agent, model=name)
        if self._session is not None:
            self._session = await self._stage.runtime.resume(self._agent, self._session.id)
        self._say(f"{name} answers from here on", "dim")

    def _say(self, words: str, style: str = "") -> None:
        self._notes.whole((words, style))
