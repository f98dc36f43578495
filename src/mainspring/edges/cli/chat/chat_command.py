"""`mainspring chat`: reads messages and prints replies until the user leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from mainspring.config import Settings
from mainspring.core.content import Block, TextBlock
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action_runner import report_errors
from mainspring.edges.cli.chat.chat_status import StatusLine
from mainspring.edges.cli.chat.slash_output import (
    print_help,
    print_reply,
    print_unknown_command,
    print_without_session,
)
from mainspring.edges.cli.chat.steering import Steering
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import Screen
from mainspring.edges.cli.run.run_arguments import RunArguments
from mainspring.edges.cli.run.run_command import print_end, run_attended
from mainspring.edges.cli.run.send import is_agent_command, send_message
from mainspring.edges.cli.run.session_runner import (
    SessionRunner,
    UserLeft,
    open_chosen_session,
    print_status,
)
from mainspring.edges.cli.run.terminal_input import Keyboard
from mainspring.harness.permissions.policy import Mode
from mainspring.log.task_groups import background_tasks
from mainspring.runtime.agent import Agent
from mainspring.runtime.command_results import SubmittedResult
from mainspring.runtime.corrections import Corrections
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.run_result import RunResult
from mainspring.runtime.session.session import Session
from mainspring.runtime.session.session_updates import record_updates
from mainspring.runtime.slash_commands import (
    PROMPT_PREFIX,
    REPLACEABLE,
    CommandContext,
    ParsedSlashCommand,
    available_commands,
    mode_of,
    mode_update,
    named_command,
    parse_command,
    run_command,
    unescape_message,
)
from mainspring.wiring.agent_selection import agent_selection
from mainspring.wiring.settings_files import settings_commands

if TYPE_CHECKING:
    from mainspring.edges.cli.chat import (
        chat_guide,
        chat_memory,
        chat_servers,
        chat_sessions,
        chat_setup,
        chat_shell,
        chat_welcome,
        mentions,
    )
    from mainspring.edges.cli.chat.chat_sessions import PickedSession
    from mainspring.edges.cli.run import input_loop, line_completion
else:
    chat_sessions = LazyModule("mainspring.edges.cli.chat.chat_sessions")
    chat_setup = LazyModule("mainspring.edges.cli.chat.chat_setup")
    chat_shell = LazyModule("mainspring.edges.cli.chat.chat_shell")
    chat_welcome = LazyModule("mainspring.edges.cli.chat.chat_welcome")
    input_loop = LazyModule("mainspring.edges.cli.run.input_loop")
    line_completion = LazyModule("mainspring.edges.cli.run.line_completion")
    mentions = LazyModule("mainspring.edges.cli.chat.mentions")
    chat_servers = LazyModule("mainspring.edges.cli.chat.chat_servers")  # most chats never ask
    chat_memory = LazyModule("mainspring.edges.cli.chat.chat_memory")
    chat_guide = LazyModule("mainspring.edges.cli.chat.chat_guide")

INTERRUPTED = 130  # a shell's status after SIGINT: 128 + 2
_CYCLED_MODES: tuple[Mode, ...] = ("default", "acceptEdits", "plan")
"""Shift-Tab goes from one to the next."""
_NEARLY_FULL = 0.8
"""The share of the context window from which a hint is shown: compaction is not far."""
_COMMANDS_BEFORE_SESSION = ("plan", "mode")
"""Commands that can begin a session; the others need one."""


async def chat(settings: Settings, *, arguments: RunArguments) -> int:
    """Talk with an agent. /help lists the commands; Ctrl-D leaves."""
    async with open_chosen_session(settings, arguments) as (runner, options):
        keyboard = Keyboard(settings)
        folder = Path(settings.folder, options.workspace or ".")
        commands = settings_commands(settings, runner.loaded_policy)
        status = StatusLine(folder, commands if commands.status_line is not None else None)
        sources = history = None
        if keyboard.can_redraw:
            history = line_completion.history_file(settings)
            sources = line_completion.open_sources(
                folder, commands=lambda: available_commands(chat.agent), status=lambda: status.text
            )
        async with keyboard.opened(sources, history), background_tasks() as group:
            chat = _Chat(settings, options, runner, keyboard, status, group)
            with runner.notices.redirected_to(chat.print_line):
                return await chat.run()


class _Chat:
    def __init__(
        self,
        settings: Settings,
        options: RunOptions,
        runner: SessionRunner,
        keyboard: Keyboard,
        status: StatusLine,
        group: TaskGroup,
    ) -> None:
        self._group = group
        """What keys start while something else goes on."""
        self._mode: Mode | None = None
        """Chosen with Shift-Tab before the session begins."""
        self._shells = chat_shell.ShellCommands(self._start, keyboard, status.folder)
        self._steering = Steering(keyboard, self._steer)
        self._status = status
        self._corrections = Corrections()
        self._pending: list[str] = []
        """Context that is sent with the next message."""
        self._settings = settings
        self._options = options
        self._runner = runner
        self._keyboard = keyboard
        self.agent = runner.agent
        self._session: Session | None = runner.session
        self._notes = Screen(settings, stderr=True)
        self._presses = 0
        self._has_shown_mode = False
        self._has_hinted = False
        if keyboard.loop is not None:
            keyboard.loop.actions = {
                "s-tab": self._start(self._cycle_mode),
                "c-b": self._shells.move_to_background,
                "c-t": self._start(self._show_tasks),
                "c-o": self._start(self._show_transcript),
                input_loop.QUEUED: self._start(self._steering.send_soon),
            }

    def _start(self, work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """A function for a key: it starts work, whose errors are printed."""

        async def run() -> None:
            await self._report_errors(work())

        def start() -> None:
            self._group.start_soon(run)

        return start

    async def run(self) -> int:
        """Chat until the user leaves. Returns the exit status."""
        await self._greet()
        status: int | None = None
        if self._session is not None:
            status = await self._report_errors(self._turn(self._session, set()))
        while status is None:
            await self._show_status()
            status = await self._read_and_reply()
        if self._session is not None:
            await self._report_errors(self._session.end("prompt_input_exit"))
            name = short_id(self._session.id)
            self.print_line(f"continue: mainspring chat --resume {name}", "dim")
        return status

    async def _show_status(self) -> None:
        window = self._runner.runtime.models.facts(self.agent.model).window
        warning = await self._status.update(
            self.agent, self._session, window=window, mode=self._mode or self._options.mode
        )
        if self._keyboard.loop is not None:
            self._keyboard.loop.redraw_soon()
        if warning is not None:
            self.print_line(warning, "yellow")
        share = self._status.context or 0
        if share >= _NEARLY_FULL and not self._has_hinted:
            hint = "/compact summarizes older messages, /clear begins a new session"
            self.print_line(f"context {share:.0%} full: {hint}", "yellow")
        self._has_hinted = share >= _NEARLY_FULL

    async def _read_and_reply(self) -> int | None:
        """Read one message and handle it. Returns an exit status if the chat is over."""
        try:
            message = (await self._keyboard.message()).strip()
        except EOFError:
            self.print_line("")
            return 0
        except KeyboardInterrupt:
            self.print_line("")
            self._presses += 1
            if self._presses == 1:
                self.print_line("Ctrl-C again, Ctrl-D or /exit leaves", "dim")
            return None if self._presses == 1 else INTERRUPTED
        self._presses = 0
        return await self._handle_input(message) if message else None

    async def _handle_input(self, message: str) -> int | None:
        """A command, or a message for the agent."""
        is_typed = self._keyboard.is_terminal  # piped text runs no commands and adds no rules
        if message.startswith("!") and is_typed:
            return await self._report_errors(self._run_shell(message[1:].strip()))
        if message.startswith("#") and is_typed:
            return await self._report_errors(self._add_rule(message[1:]))
        command = named_command(parse_command(message), self.agent)
        if command is None:
            return await self._report_errors(self._send(unescape_message(message)))
        return await self._report_errors(self._command(command, message))

    async def _report_errors(self, step: Awaitable[int | None]) -> int | None:
        """Print errors and continue the chat."""
        return await report_errors(self._settings, step, with_bugs=self._keyboard.is_terminal)

    async def _greet(self) -> None:
        if (before := self._runner.session_summary) is not None:
            log = self._runner.runtime.log
            await chat_sessions.show_resumed(self._settings, self._notes, log, before)
        if not self._keyboard.is_terminal:
            self.print_line(f"{self.agent.name} · {self.agent.model} · /help", "dim")
            return
        folder = self._status.folder
        welcome = chat_welcome.ChatWelcome(self._settings, folder, self._runner, self._options)
        await welcome.show(self._notes)

    async def _ensure_session(self) -> Session:
        """The session; a new one if there is none yet."""
        if self._session is None:
            self._session = await self._runner.start(self.agent)
            if self._mode is not None:
                await self._session.permit(*mode_update(self._mode).updates)
        return self._session

    async def _send(self, message: str) -> int | None:
        if not self._keyboard.is_terminal:
            return await self._send_blocks([TextBlock(message)])
        if self._corrections.note(message):
            message = await self._after_corrections(message)
        return await self._send_blocks(await self._expand(message))

    async def _expand(self, message: str) -> list[Block]:
        """The message with its attachments, and what waits to be sent with it."""
        expanded = await mentions.expand_mentions(message, self._status.folder)
        if expanded.permissions:
            await (await self._ensure_session()).permit(*expanded.permissions)
        if expanded.attached:
            self.print_line(f"attached: {', '.join(expanded.attached)}", "dim")
        context = [TextBlock(text) for text in self._pending]
        self._pending.clear()
        return [*context, *expanded.blocks]

    def _steer_at(self, event: Event) -> None:
        if self._steering.is_due(event):
            self._start(self._steering.send)()

    async def _steer(self, message: str) -> None:
        if self._session is not None:
            await self._session.send(await self._expand(unescape_message(message)))

    async def _show_tasks(self) -> None:
        await self._set_up(ParsedSlashCommand("todos", ""))

    async def _show_transcript(self) -> None:
        if self._session is None or self._keyboard.loop is None:
            return
        log = self._runner.runtime.log
        lines = await chat_sessions.transcript(self._settings, log, self._session.id)
        await self._keyboard.loop.page(lines)

    async def _cycle_mode(self) -> None:
        mode = self._mode or self._options.mode or "default"
        if self._session is not None:
            mode = await mode_of(self._session.log, self._session.id)
        at = _CYCLED_MODES.index(mode) if mode in _CYCLED_MODES else -1
        self._mode = _CYCLED_MODES[(at + 1) % len(_CYCLED_MODES)]
        if self._session is not None:
            await self._session.permit(*mode_update(self._mode).updates)
        await self._show_status()

    async def _send_blocks(self, blocks: list[Block]) -> int | None:
        session = await self._ensure_session()
        return await self._turn(session, {(await session.send(blocks)).event_id})

    async def _after_corrections(self, message: str) -> str:
        """The message to send: the correction, a request for a diagnosis, or a clean start."""
        match await chat_shell.ask_after_corrections(self._notes, self._keyboard.ask):
            case "diagnose":
                return self._corrections.diagnosis_request()
            case "start clean":
                message = self._corrections.clean_start()
                await self._clear()
                return message
            case "send":
                return message

    async def _run_shell(self, command: str) -> None:
        if not command:
            raise InvalidInput("say what to run: !git status")
        await self._shells.run(self._notes, command, self._pending)
        self.print_line("the agent reads this with your next message", "dim")

    async def _add_rule(self, rule: str) -> None:
        ask = self._keyboard.ask
        added = await chat_shell.add_rule(self._notes, ask, rule, self._status.folder)
        if added is not None:
            self._pending.append(f"From now on this rule of the project applies: {added}")

    async def _turn(self, session: Session, own: set[str]) -> int | None:
        """Run until it waits for a message. Returns an exit status if the chat is over."""
        result = await self._run(session, own)
        while await self._steering.end_run() and not isinstance(result, UserLeft):
            result = await self._run(session, own) or result
        if isinstance(result, UserLeft):
            return INTERRUPTED
        if result is not None:
            await print_end(self._notes, session, result)
            print_status(self._notes, result)
            await self._print_mode(session, result)
        return None

    async def _run(self, session: Session, own: set[str]) -> RunResult | UserLeft | None:
        return await run_attended(
            self._settings,
            session,
            own=own,
            notices=self._runner.notices,
            keyboard=self._keyboard,
            watch=self._steer_at,
        )

    async def _print_mode(self, session: Session, result: RunResult) -> None:
        """Remind the user once of plan mode, if a turn ends without a plan."""
        if self._has_shown_mode or result.reason != "completed":
            return
        if await mode_of(session.log, session.id) == "plan":
            self.print_line("mode plan: nothing is changed; /mode default leaves it", "dim")
            self._has_shown_mode = True

    async def _command(self, command: ParsedSlashCommand, message: str) -> int | None:
        own = {"model": self._change_model, "memory": self._memory, "mcp": self._servers,
               "guide": self._guide, "bashes": partial(self._shells.show, self._notes),
               "clear": self._clear, "fork": self._fork}  # fmt: skip
        match command.name:
            case name if name in REPLACEABLE and is_agent_command(self.agent, message):
                return await self._run_agent_command(command, message)
            case "exit":
                return 0
            case "help" | "":
                print_help(self._notes, available_commands(self.agent))
            case name if name in own:
                await own[name](command.arguments)
            case name if name in chat_setup.PROMPTS or name in chat_setup.SETUP_COMMANDS:
                return await self._set_up(command)
            case "resume" | "rewind" | "diff" | "export":
                await self._session_command(command)
            case _:
                return await self._perform(command, message)
        return None

    async def _set_up(self, command: ParsedSlashCommand) -> int | None:
        if (prompt := chat_setup.PROMPTS.get(command.name)) is not None:
            return await self._send(prompt.format(command.arguments).strip())
        setup = chat_setup.ChatSetup(
            self._settings,
            self._notes,
            self._keyboard,
            self._runner.loaded_policy,
            self.agent,
            self._session,
            self._status.folder,
        )
        agent = await setup.run(command.name, command.arguments)
        if agent is not None:
            await self._continue_as(agent)
        return None

    async def _perform(self, command: ParsedSlashCommand, message: str) -> int | None:
        """Run a built-in command, or else a command of the agent."""
        every = available_commands(self.agent)
        built_in = {item.name for item in every if item.kind == "built-in"}
        if command.name not in built_in:
            return await self._run_agent_command(command, message)
        if command.name == "agents" and command.arguments:
            chat_shell.write_subagent(self._notes, self._status.folder, command.arguments)
            return None
        if self._session is None and command.name not in _COMMANDS_BEFORE_SESSION:
            print_without_session(self._notes, self.agent, command.name)
            return None
        session = await self._ensure_session()
        window = self._runner.runtime.models.facts(self.agent.model).window
        at = CommandContext(
            log=session.log,
            session_id=session.id,
            agent=self.agent,
            sender=self._runner.runtime.sender,
            window=window,
        )
        reply = await run_command(at, command.name, command.arguments)
        if reply is not None:
            print_reply(self._notes, reply)
        if command.name in ("good", "bad"):
            await record_updates(session.log, session.id)
        if isinstance(reply, SubmittedResult) and reply.is_work:
            return await self._turn(session, set(reply.event_ids))
        return None

    async def _run_agent_command(self, command: ParsedSlashCommand, message: str) -> int | None:
        """Run a skill or a command that the agent defines."""
        if command.name.startswith(PROMPT_PREFIX):
            return await self._send(message)
        if not is_agent_command(self.agent, message):
            print_unknown_command(self._notes, command.name, available_commands(self.agent))
            return None
        session = await self._ensure_session()
        return await self._turn(
            session, {await send_message(self._settings, self.agent, session, message)}
        )

    async def _clear(self, _: str = "") -> None:
        """Begin a new session with the next message, and read the agent's files again."""
        facts = self._runner.runtime.models.facts
        read_agent = partial(agent_selection(self._settings).open, self._options, facts=facts)
        loaded = await anyio.to_thread.run_sync(read_agent)
        self.agent = replace(loaded.agent, model=self.agent.model)
        last, self._session = self._session, None
        self._corrections.clear()
        before = f"; the previous one: mainspring chat --resume {short_id(last.id)}" if last else ""
        self.print_line(f"a new session begins{before}", "dim")

    async def _session_command(self, command: ParsedSlashCommand) -> None:
        current = None if self._session is None else self._session.id
        chat = chat_sessions.ChatSessions(
            self._settings, self._notes, self._runner.runtime.log, self._keyboard
        )
        if (picked := await chat.run(command.name, command.arguments, current)) is not None:
            await self._continue_with(picked)

    async def _continue_with(self, picked: PickedSession) -> None:
        runtime, model = self._runner.runtime, picked.model or self.agent.model
        runtime.models.open(model)
        self.agent = replace(self.agent, model=model, memory=picked.memory or self.agent.memory)
        self._session = await self._runner.resume(self.agent, picked.id)
        await chat_sessions.show_conversation(self._settings, runtime.log, picked.id)
        self.print_line(f"this is session {short_id(picked.id)} now", "dim")

    async def _fork(self, _: str = "") -> None:
        if (parent := self._session) is None:
            return self.print_line("nothing yet", "dim")
        self._session = await parent.fork()
        name, before = short_id(self._session.id), f"mainspring chat --resume {short_id(parent.id)}"
        text = f"forked: this is session {name} now; the previous one is unchanged: {before}"
        return self.print_line(text, "dim")

    async def _servers(self, arguments: str) -> None:
        session_id = None if self._session is None else self._session.id
        await chat_servers.run_mcp_command(self._settings, self._notes, session_id, arguments)

    async def _guide(self, question: str) -> None:
        context = (self._settings, self._runner, self._keyboard, self.agent, self._status.folder)
        await chat_guide.ask_guide(*context, question)

    async def _memory(self, arguments: str) -> None:
        settings = replace(self._settings, folder=str(self._status.folder))
        run = chat_memory.run_memory_command
        async with self._keyboard.suspended():  # an editor may be opened
            agent = await run(settings, self._notes, self.agent, self._session, arguments)
        await self._continue_as(agent)

    async def _continue_as(self, agent: Agent) -> None:
        self.agent = agent
        if self._session is not None:
            self._session = await self._runner.runtime.resume(agent, self._session.id)

    async def _change_model(self, name: str) -> None:
        if not name:
            hint = "/model NAME changes it, `mainspring models ls` lists models"
            return self.print_line(f"{self.agent.model}; {hint}")
        self._runner.runtime.models.open(name)
        await self._continue_as(replace(self.agent, model=name))
        return self.print_line(f"{name} answers from here on", "dim")

    def print_line(self, text: str, style: str = "") -> None:
        self._notes.paragraph((text, style))
