"""What `mainspring chat` does: messages and replies in turn, until somebody leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core.errors import MainspringError
from mainspring.edges.cli.gist import short
from mainspring.edges.cli.keyboard import Keyboard
from mainspring.edges.cli.render import Screen, counted, dollars, token_count
from mainspring.edges.cli.running import attended, report_end
from mainspring.edges.cli.stage import Left, Stage, open_stage, tell_status
from mainspring.harness.context.anatomy import cached_share
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime.outline import outline
from mainspring.runtime.sessions import Result, Session
from mainspring.wiring.agents import Wanted

__all__ = ["Wanted", "chat"]

INTERRUPTED = 130
_HELP = (
    ("/help", "this"),
    ("/model NAME", "go on with another model"),
    ("/cost", "what the session took so far"),
    ("/exit", "leave; Ctrl-D and two times Ctrl-C do too"),
    ("\\ at the end", "the message goes on in the next line; so it does in an open ``` fence"),
    ("Alt-Enter", "a new line"),
    ("Ctrl-C", "interrupts the reply; once more leaves"),
)


async def chat(settings: Settings, *, wanted: Wanted, resume: str | None) -> int:
    async with open_stage(settings, wanted, resume) as stage:
        keyboard = Keyboard(_history(settings), colour=settings.color)
        keyboard.open()
        try:
            return await _Chat(settings, stage, keyboard).run()
        finally:
            keyboard.close()


def _history(settings: Settings) -> Path:
    if is_postgres(settings.store):
        return Path(settings.folder) / FOLDER / "chat_history"
    return Path(settings.store).parent / "chat_history"


class _Chat:
    def __init__(self, settings: Settings, stage: Stage, keyboard: Keyboard) -> None:
        self._settings = settings
        self._stage = stage
        self._keyboard = keyboard
        self._agent = stage.agent
        self._session: Session | None = stage.session
        self._notes = Screen(settings, stderr=True)
        self._presses = 0

    async def run(self) -> int:
        """The exit status, once somebody has left."""
        self._greet()
        status: int | None = None
        if self._session is not None:
            status = await self._turn(self._session, set())  # what was left unfinished
        while status is None:
            status = await self._exchange()
        self._part()
        return status

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
        if message.startswith("/"):
            return await self._command(*message[1:].split(maxsplit=1))
        return await self._send(message) if message else None

    def _greet(self) -> None:
        before = self._stage.outline
        if before is not None:
            title = f": {before.title}" if before.title else ""
            self._say(f"session {short(before.id)}, {counted(before.turns, 'turn')}{title}", "dim")
        self._say(f"{self._agent.name} · {self._agent.model} · /help", "dim")

    def _part(self) -> None:
        if self._session is not None:
            self._say(f"go on: mainspring chat --resume {short(self._session.id)}", "dim")

    async def _send(self, message: str) -> int | None:
        if self._session is None:
            self._session = await self._stage.start()
        sent = await self._session.send(message)
        return await self._turn(self._session, {sent.event_id})

    async def _turn(self, session: Session, own: set[str]) -> int | None:
        """An exit status, if the chat is over."""
        try:
            result = await attended(self._settings, session, own=own, keyboard=self._keyboard)
        except MainspringError as error:
            self._say(f"error: {error}", "bold red")
            return None
        match result:
            case Result():
                await report_end(self._notes, session, result)
                tell_status(self._notes, result)
            case Left():
                return INTERRUPTED
            case None:
                pass
        return None

    async def _command(self, name: str = "", argument: str = "") -> int | None:
        match name:
            case "exit" | "quit":
                return 0
            case "cost":
                await self._tell_cost()
            case "model":
                await self._change_model(argument.strip())
            case _:
                if name != "help":
                    self._say(f"there is no /{name}", "yellow")
                for what, meaning in _HELP:
                    self._notes.whole((f"  {what:<14}", "bold"), (meaning, ""))
        return None

    async def _tell_cost(self) -> None:
        if self._session is None:
            self._say("nothing yet", "dim")
            return
        log = self._session.log
        stands = await outline(log, await log.session(self._session.id))
        share = cached_share(stands.usage) or 0
        self._say(
            f"{counted(stands.turns, 'turn')}, {token_count(prompt_tokens(stands.usage))} in"
            f" ({share:.0%} cached), {token_count(stands.usage.output_tokens)} out,"
            f" {dollars(stands.cost_usd)}"
        )

    async def _change_model(self, name: str) -> None:
        if not name:
            self._say(f"{self._agent.model}; /model NAME changes it, `mainspring models ls` lists")
            return
        try:
            self._stage.runtime.models.open(name)
        except MainspringError as error:
            self._say(f"error: {error}", "bold red")
            return
        self._agent = replace(self._agent, model=name)
        if self._session is None:
            self._session = await self._stage.runtime.start(
                self._agent, metadata=self._stage.origin
            )
        else:
            self._session = await self._stage.runtime.resume(self._agent, self._session.id)
        self._say(f"{name} answers from here on", "dim")

    def _say(self, words: str, style: str = "") -> None:
        self._notes.whole((words, style))
