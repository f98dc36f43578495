"""`mainspring -p`: runs an agent for a script, with the output formats of Claude Code: the final
text, one JSON object, or a stream of JSON lines. Nobody is asked: calls that need a person are
denied."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mainspring import __version__
from mainspring.config import Settings
from mainspring.core import clock, events
from mainspring.core.content import Block
from mainspring.core.envelope import Event
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Delta, RetryScheduled
from mainspring.edges.cli.render.printing import Screen
from mainspring.edges.cli.render.renderer import error_lines
from mainspring.edges.cli.render.run_activity import waiting_text
from mainspring.edges.cli.run.control_protocol import NOBODY_ASKED, ControlChannel
from mainspring.edges.cli.run.run_arguments import (
    STDIO,
    OutcomeArguments,
    PrintArguments,
    RunArguments,
)
from mainspring.edges.cli.run.run_command import (
    DONE,
    EXIT_STATUS,
    FAILED,
    INTERRUPTED,
    print_end,
    read_prompt,
    submit_prompt,
)
from mainspring.edges.cli.run.session_runner import (
    SessionRunner,
    UserLeft,
    open_chosen_session,
    run_interruptible,
)
from mainspring.edges.cli.run.stream_input import (
    ControlRequest,
    ControlResponse,
    StreamInput,
    UserInput,
)
from mainspring.harness.context.xray import decode_prefix
from mainspring.harness.permissions.tool_names import claude_code_name
from mainspring.log.task_groups import unwrap_single_error
from mainspring.runtime.export_sessions.api_blocks import media_of
from mainspring.runtime.export_sessions.claude_code_stream import (
    ClaudeCodeStream,
    RunEnd,
    StreamMessage,
)
from mainspring.runtime.export_sessions.claude_code_transcript import bare_model
from mainspring.runtime.session.run_result import ApprovalRequest, OnApproval, RunResult
from mainspring.runtime.session.session import Session
from mainspring.runtime.session.session_summary import workspace_of
from mainspring.runtime.slash_commands import available_commands, mode_of

if TYPE_CHECKING:
    from mainspring.edges.cli.render import mcp_views
    from mainspring.wiring import mcp_servers
else:
    mcp_servers = LazyModule("mainspring.wiring.mcp_servers")  # only for streams
    mcp_views = LazyModule("mainspring.edges.cli.render.mcp_views")

_SERVER_STATES = {
    "connected": "connected",
    "failed": "failed",
    "unused": "disabled",
    "unknown": "pending",
}
"""The states as Claude Code names them."""

_PROTOCOL_VERSION = "2.0.0"
"""The version of Claude Code whose messages these are; its SDKs warn about older ones."""
_Item: TypeAlias = Event | Delta


def deny_unasked(_request: ApprovalRequest) -> str:
    return NOBODY_ASKED


async def run_printed(
    settings: Settings,
    arguments: RunArguments,
    printing: PrintArguments,
    outcome: OutcomeArguments,
    prompt: str | None,
) -> int:
    resumed = arguments.session()
    is_streamed_in = printing.is_streamed_in
    text = None if is_streamed_in else await read_prompt(prompt, required=resumed is None)
    async with open_chosen_session(
        settings, arguments, unattended=True, runs_at_once=not is_streamed_in
    ) as (runner, _):
        outcome.check(text, is_defined=runner.has_new_outcome)
        if is_streamed_in:
            return await _run_input(settings, printing, runner)
        session = runner.session or await runner.start()
        run = await PrintedSession.open(settings, printing, runner, session)
        if text is not None:
            await submit_prompt(settings, runner, outcome, session, text)
        return await run.run()


@dataclass(slots=True)
class PrintedSession:
    """A session whose runs are printed. Create it with `open`."""

    settings: Settings
    printing: PrintArguments
    runner: SessionRunner
    session: Session
    stream: ClaudeCodeStream
    _screen: Screen
    _notes: Screen
    on_approval: OnApproval = deny_unasked
    has_left: bool = False
    """Whether the user left before the end of a run."""
    _has_init: bool = False

    @classmethod
    async def open(
        cls,
        settings: Settings,
        printing: PrintArguments,
        runner: SessionRunner,
        session: Session,
    ) -> PrintedSession:
        row = await session.log.session(session.id)
        stream = ClaudeCodeStream(session_id=session.id, main_thread=row.thread_id)
        for event in await session.events():
            stream.skip(event)
        return cls(
            settings=settings,
            printing=printing,
            runner=runner,
            session=session,
            stream=stream,
            _screen=Screen(settings),
            _notes=Screen(settings, stderr=True),
        )

    def write(self, message: StreamMessage) -> None:
        """Print one line of stream-json."""
        self._screen.json(message)

    async def run(self) -> int:
        """Run the session until it ends, and print the result. Returns the exit status."""
        began = clock.now()
        send, receive = anyio.create_memory_object_stream[_Item](math.inf)
        ended: RunResult | UserLeft | None = UserLeft()
        with unwrap_single_error():
            async with anyio.create_task_group() as group:
                group.start_soon(self._print_all, receive)
                with send:
                    ended = await run_interruptible(
                        self.session,
                        emit=send.send_nowait,
                        tell=send.send_nowait,
                        say=self._say,
                        on_approval=self.on_approval,
                    )
        result = await self.session.last_result() if ended is None else ended
        if isinstance(result, UserLeft):
            self.has_left = True
            return INTERRUPTED
        await self._print_result(result, began=began)
        return EXIT_STATUS.get(result.reason, FAILED)

    async def _print_all(self, receive: MemoryObjectReceiveStream[_Item]) -> None:
        with receive:
            async for item in receive:
                await self.take(item)

    def _say(self, text: str) -> None:
        self._notes.paragraph((text, "dim"))

    async def take(self, item: _Item) -> None:
        """Print the messages that an event or a delta completes."""
        self._print_failure(item)
        if not isinstance(item, Event):
            if self.printing.with_partial_messages:
                self._write_all(self.stream.piece(item))
            return
        media = await media_of(self.session.log, _blocks(item))
        messages = self.stream.take(item, media)
        if not self.printing.is_stream:
            return
        if isinstance(item.payload, events.ModelRequestStarted) and not self._has_init:
            await self.write_init(item.payload.prefix)
        if self.printing.with_partial_messages:
            self._write_all(self.stream.boundary(item))
        self._write_all(messages)

    def _print_failure(self, item: _Item) -> None:
        """With text on standard error, where JSON has it in the stream or in the result."""
        is_text = self.printing.output_format in (None, "text")
        match item:
            case RetryScheduled() if self.printing.is_stream:
                self.write(self.stream.retry(item))
            case RetryScheduled() if is_text:
                self._notes.paragraph((waiting_text(item), "yellow"))
            case Event(payload=events.SessionFailed(error=error)) if is_text:
                for line in error_lines(error):
                    self._notes.paragraph(line)
            case _:
                pass

    def _write_all(self, messages: Iterable[StreamMessage]) -> None:
        for message in messages:
            self.write(message)

    async def write_init(self, prefix: str | None) -> None:
        """Print the first message of a run. `prefix`: the blob with the model's tools."""
        self._has_init = True
        agent, log = self.session.agent, self.session.log
        tools = () if prefix is None else decode_prefix(await log.blob(prefix)).tools
        commands = available_commands(agent)
        fields = {
            "cwd": await workspace_of(log, self.session.id) or str(self.settings.folder),
            "model": bare_model(agent.model),
            "permissionMode": await mode_of(log, self.session.id),
            "tools": [claude_code_name(tool.name) for tool in tools],
            "mcp_servers": await self._servers(),
            "slash_commands": [command.name for command in commands if not command.is_clients],
            "agents": [subagent.name for subagent in agent.subagents],
            "skills": [skill.name for skill in agent.skills],
            "apiKeySource": "none",
            "output_style": "default",
            "claude_code_version": f"{_PROTOCOL_VERSION} (Mainspring {__version__})",
        }
        self.write(self.stream.init(fields))

    async def _servers(self) -> list[dict[str, str]]:
        """The names and states of the MCP servers; the first model request waits for them."""
        project = await anyio.to_thread.run_sync(mcp_servers.read_project_servers, self.settings)
        servers = mcp_servers.SERVERS.of_session(self.session.id) if project.every else None
        views = mcp_views.server_views(project, servers)
        return [{"name": view.name, "status": _SERVER_STATES[view.state]} for view in views]

    async def _print_result(self, result: RunResult, *, began: datetime) -> None:
        if self.printing.output_format in (None, "text"):
            if result.text:
                self._screen.text(f"{result.text}\n")
            if result.reason not in ("completed", "compacted"):
                await print_end(self._notes, self.session, result)
            return
        if self.printing.is_stream and not self._has_init:
            await self.write_init(None)
        self._has_init = False
        end = RunEnd(
            reason=result.reason,
            text=result.text,
            detail=result.detail,
            duration=clock.now() - began,
        )
        self.write(self.stream.result(end))


def _blocks(event: Event) -> tuple[Block, ...]:
    match event.payload:
        case events.AgentMessage(content=content) | events.AgentToolResult(content=content):
            return content
        case events.AgentMcpToolResult(content=content):
            return content
        case _:
            return ()


async def _run_input(settings: Settings, printing: PrintArguments, runner: SessionRunner) -> int:
    """Run the session for each message on standard input, until the input ends. Control requests
    are answered meanwhile; those before the first message configure the session."""
    send, receive = anyio.create_memory_object_stream[UserInput](math.inf)
    channel = ControlChannel(
        write=Screen(settings).json, asks_permission=printing.permission_prompt_tool == STDIO
    )
    status, sessions = DONE, list[Session]()

    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            group.start_soon(_read_lines, send, channel, sessions)
            with receive:
                run: PrintedSession | None = None
                async for line in receive:
                    if run is None:
                        session = await _open_session(settings, runner, channel)
                        sessions.append(session)
                        run = await PrintedSession.open(settings, printing, runner, session)
                        run.on_approval = channel.on_approval
                    await run.session.send(line.message.blocks())
                    status = await run.run()
                    if status == INTERRUPTED and run.has_left:
                        group.cancel_scope.cancel()
    return status


async def _read_lines(
    send: MemoryObjectSendStream[UserInput], channel: ControlChannel, sessions: Sequence[Session]
) -> None:
    """`sessions`: empty until the session is open."""
    source = StreamInput()
    try:
        with send:
            while (line := await source.next()) is not None:
                match line:
                    case UserInput():
                        send.send_nowait(line)
                    case ControlRequest():
                        await channel.respond(line, sessions[0] if sessions else None)
                    case ControlResponse():
                        channel.on_response(line)
    finally:
        channel.close()


async def _open_session(
    settings: Settings, runner: SessionRunner, channel: ControlChannel
) -> Session:
    """The session with the hooks and subagents of the program that started this process."""
    session = runner.session
    session_id = "" if session is None else session.id
    agent = channel.configured(runner.agent, session_id=session_id, folder=str(settings.folder))
    if session is None:
        return await runner.start(agent)
    return await runner.runtime.resume(agent, session.id)
