"""Runs the agents and programs of a workflow as sessions, with what their nodes declare and no more
than their runner has."""

from __future__ import annotations

import math
import shlex
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias, cast

import anyio
import msgspec
from anyio import to_thread

from mainspring.core.content import BlobBlock, TextBlock
from mainspring.core.envelope import event_types
from mainspring.core.errors import (
    InvalidInput,
    SessionExists,
    SessionNotFound,
    ToolEnvironmentError,
)
from mainspring.core.events import AgentToolResult, HookRan, WorkspaceSnapshotted
from mainspring.core.sender import Origin
from mainspring.files.atomic_file import write_atomic
from mainspring.harness import hook_events
from mainspring.harness.budget import Budget
from mainspring.harness.permissions.policy import PolicyRule
from mainspring.harness.permissions.tool_names import ALL_TOOLS
from mainspring.harness.state.thread import Thread
from mainspring.log.writer import Writer
from mainspring.runtime.agent import Agent
from mainspring.runtime.mcp_server import McpServerTools
from mainspring.runtime.run_options import ProgramOptions, RunOptions
from mainspring.runtime.session.run_result import OK_REASONS, OnApproval, RunResult
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.workflows.format.definition import Node
from mainspring.runtime.workflows.format.program_text import MAX_VARIABLE_BYTES
from mainspring.runtime.workflows.format.references import parse_json
from mainspring.runtime.workflows.node_agent import (
    denied_tools,
    format_problem,
    node_agent,
    node_mode,
)
from mainspring.runtime.workflows.program_model import NAME, TOOL, ProgramModel
from mainspring.runtime.workflows.run_budget import run_budget
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepPorts, StepResult

RUNS_FOLDER = ".workflow-runs"
"""In the workspace, so that agents and sandboxed programs reach it. Git ignores it."""
_MAX_OUTPUT_BYTES = 4_000_000
"""The output of one program: twice what a reviewer of it could read in a day."""
_EMPTY = "(no output)"
_TRUSTED_PROGRAM = PolicyRule(text="Bash", behavior="allow")
"""Whoever trusts a workflow by its hash has allowed its programs. Rules that deny or ask, modes and
protected files still apply, and so does the sandbox."""
_TRANSIENT = frozenset(("model_error", "recovery_exhausted"))
_IDLE = "timed out: nothing happened for its idle_timeout"


OnSession: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Called before a session of a node runs, with its id and the node's path."""


async def ignore_session(_session_id: str, _path: str) -> None:
    pass


@dataclass(slots=True, kw_only=True)
class SessionSteps:
    """A `StepRunner`."""

    runtime: Runtime
    agent: Agent
    """The runner's own agent: nodes get a part of what it may use."""
    ports: StepPorts
    worktrees: Path
    """The folder for worktrees."""
    is_trusted: bool = True
    """A person has trusted the workflow, so its programs run without a question. Those of an
    agent's own plan are judged like its calls."""
    run_id: str = ""
    budget: Budget | None = None
    on_session: OnSession = ignore_session
    on_approval: OnApproval | None = None
    folder: Path | None = None
    """The run's folder in its workspace."""

    def __post_init__(self) -> None:
        self.runtime.models.put(NAME, ProgramModel())

    async def begin(self, run_id: str, limit_usd: Decimal | None) -> None:
        """Take over a run, whose sessions share its budget.

        Raises: SessionNotFound. InvalidInput: it is not a run.
        """
        self.run_id = run_id
        runtime = self.runtime
        self.budget = await run_budget(runtime.log, run_id, limit_usd, runtime.budget)

    async def run_agent(self, step: AgentStep) -> StepResult:
        agent = node_agent(step, self.agent, self.runtime.models, self.ports.static_answers)
        history = ()
        if step.continues is not None:
            source = await self.runtime.resume(agent, step.continues)
            history = await source.history()
        options = self._agent_options(step)
        session = await self._open(agent, step.session_id, step.path, options, history)
        await session.send(step.prompt, client_id="prompt")
        result = await self._run(session, step.node.idle_timeout_ms)
        if result is None:
            return StepResult(status="failed", error=_IDLE, is_transient=True)
        if result.reason == "requires_action":
            return StepResult(status="waiting")
        if result.reason not in OK_REASONS:
            return _failed(result)
        structured = None
        if step.node.output_format is not None:
            problem = format_problem(step.node.output_format, result.text)
            if problem is not None:
                return StepResult(
                    status="failed", error=f"output_format: {problem}", cost_usd=result.cost_usd
                )
            structured = parse_json(result.text)
        text = result.text
        if structured is not None:
            text = msgspec.json.encode(structured).decode()
        return StepResult(
            status="completed", output=text, structured=structured, cost_usd=result.cost_usd
        )

    async def run_program(self, step: ProgramStep) -> StepResult:
        command, variables = await to_thread.run_sync(self._program, step)
        base = self._options(step.workspace)
        is_trusted = self.is_trusted or step.is_own
        if not is_trusted and not {TOOL, ALL_TOOLS}.intersection(self.agent.built_ins):
            raise InvalidInput(f"{step.path} is a program, and the agent has no {TOOL}")
        options = replace(
            base,
            rules=(*base.rules, _TRUSTED_PROGRAM) if is_trusted else base.rules,
            program=ProgramOptions(variables=variables, max_output_bytes=_MAX_OUTPUT_BYTES),
            server_names=(),
        )
        session = await self._open(self._program_agent, step.session_id, step.path, options)
        call: dict[str, object] = {"command": command}
        if step.timeout_ms is not None:
            call["timeout_ms"] = step.timeout_ms
        await session.send(msgspec.json.encode(call).decode(), client_id="prompt")
        result = await self._run(session)
        if result is None or result.reason == "requires_action":
            return StepResult(status="waiting")
        if result.reason not in OK_REASONS:
            return _failed(result)
        return await self._program_result(session, step)

    async def notify(self, writer: Writer, message: str, kind: str) -> Sequence[HookRan]:
        thread = Thread(id=writer.thread_id)
        request = SetupRequest(
            agent=self._program_agent,
            thread=thread,
            writer=writer,
            log=self.runtime.log,
            options=replace(self.runtime.options, server_names=()),
        )
        try:
            async with self.runtime.toolbox_factory(request) as toolbox:
                if "Notification" not in toolbox.hook_events:
                    return ()
                event = hook_events.notification(message, kind)
                return (await toolbox.authorizer.run_hooks(thread, event)).hook_runs
        except (InvalidInput, ToolEnvironmentError) as error:  # no reason to stop the run
            request.options.warn(f"no hook could be run: {error}")
            return ()

    async def open_worktree(self, name: str, workspace: Path | None) -> Path:
        workspace = workspace or self.runtime.options.workspace
        if workspace is None:
            raise InvalidInput("a worktree needs a workspace")
        worktrees = self.ports.open_worktrees(workspace, self.worktrees)
        if worktrees is None:
            raise InvalidInput(f"{workspace} is not a git repository, so it has no worktrees")
        return (await worktrees.open(name)).path

    async def prepare_folder(
        self, workspace: Path | None, name: str, before: str | None = None
    ) -> Path:
        root = (workspace or self.runtime.options.workspace or Path()).absolute()
        self.folder = root / RUNS_FOLDER / name
        await to_thread.run_sync(_prepare, root, name, before)
        return self.folder

    async def wait(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def changed_files(self, session_id: str) -> bool:
        try:
            events = await self.runtime.log.read(
                session_id, types=event_types(WorkspaceSnapshotted)
            )
        except SessionNotFound:
            return False
        snapshots = {
            event.payload.snapshot
            for event in events
            if isinstance(event.payload, WorkspaceSnapshotted)
        }
        return len(snapshots) > 1

    async def _open(
        self,
        agent: Agent,
        session_id: str,
        path: str,
        options: RunOptions,
        history: Sequence[object] = (),
    ) -> Session:
        base = self.runtime
        runtime = Runtime(
            base.log,
            base.models,
            toolbox_factory=base.toolbox_factory,
            options=options,
            budget=self.budget or base.budget,
            sender=base.sender,
        )
        await self.on_session(session_id, path)
        try:
            return await runtime.start(
                agent,
                title=path,
                origin=Origin(type="workflow", id=self.run_id),
                metadata={"workflow_run": self.run_id, "workflow_node": path},
                session_id=session_id,
                history=cast("Sequence[dict[str, object]]", history),
            )
        except SessionExists:
            return await runtime.resume(agent, session_id)

    async def _run(self, session: Session, idle_ms: int | None = None) -> RunResult | None:
        """`None`: nothing has happened for so long."""
        seconds = math.inf if idle_ms is None else idle_ms / 1000
        with anyio.move_on_after(seconds) as scope:

            def note_progress(_: object) -> None:
                scope.deadline = anyio.current_time() + seconds

            result = await session.run(
                note_progress, tell=note_progress, on_approval=self.on_approval
            )
            return result or await session.last_result()

    def _options(self, workspace: Path | None) -> RunOptions:
        options = self.runtime.options
        return options if workspace is None else replace(options, workspace=workspace)

    def _agent_options(self, step: AgentStep) -> RunOptions:
        options, node = self._options(step.workspace), step.node
        denied = [PolicyRule(text=text, behavior="deny") for text in denied_tools(node, self.agent)]
        servers = [item.server for item in self._toolsets(node)]
        return replace(
            options,
            mode=node_mode(node, self.agent) or options.mode,
            rules=(*options.rules, *denied),
            server_names=(*step.servers, *servers),
        )

    def _toolsets(self, node: Node) -> Sequence[McpServerTools]:
        """Those of the agent that the node names: it has them itself."""
        named = next((item for item in self.agent.subagents if item.name == node.agent), None)
        return () if named is None or named.own is None else named.own.mcp_toolsets

    @property
    def _program_agent(self) -> Agent:
        return Agent(
            name="program", model=NAME, built_ins=(TOOL,), memory="off", folder=self.agent.folder
        )

    def _program(self, step: ProgramStep) -> tuple[str, dict[str, str]]:
        """The command, and its environment. Values too long for it are in files. Blocks."""
        variables, lines = dict[str, str](), list[str]()
        folder = self.folder or Path(RUNS_FOLDER).absolute()
        for name, value in step.variables.items():
            content = value.encode("utf-8", "replace")
            if len(content) <= MAX_VARIABLE_BYTES:
                variables[name] = value
                continue
            file = folder / "values" / f"{step.session_id[-12:]}-{name}"
            write_atomic(file, content)
            variables[f"{name}_FILE"] = str(file)
            lines.append(f"IFS= read -r -d '' {name} < {shlex.quote(str(file))} || :\n")
        errors = folder / "errors" / step.session_id[-12:]
        lines.append(f"exec 2> {shlex.quote(str(errors))}\n")
        return "".join((*lines, step.command)), variables

    async def _program_result(self, session: Session, step: ProgramStep) -> StepResult:
        events = await session.log.read(session.id, types=event_types(AgentToolResult))
        payloads = [item.payload for item in events if isinstance(item.payload, AgentToolResult)]
        if not payloads:
            return StepResult(status="failed", error="it did not run", is_transient=True)
        result = payloads[-1]
        pieces: list[str] = []
        for block in result.content:
            if isinstance(block, BlobBlock):
                pieces.append((await session.log.blob(block.hash)).decode("utf-8", "replace"))
            elif isinstance(block, TextBlock):
                pieces.append(block.text)
        text = "".join(pieces)
        if not result.is_error:
            return StepResult(status="completed", output="" if text == _EMPTY else text)
        errors = await to_thread.run_sync(self._errors, step.session_id)
        error = "\n".join(item for item in (text[-2000:], errors) if item)
        kind = "timed out: " if result.error == "timed_out" else ""
        return StepResult(
            status="failed",
            output=text,
            error=f"{kind}{error}",
            is_transient=result.error in ("timed_out", "unavailable"),
        )

    def _errors(self, session_id: str) -> str:
        """The end of what a program wrote to standard error. Blocks."""
        file = (self.folder or Path()) / "errors" / session_id[-12:]
        try:
            if file.is_symlink() or not file.is_file():
                return ""
            return file.read_bytes()[-2000:].decode("utf-8", "replace").strip()
        except OSError:
            return ""


def _prepare(root: Path, name: str, before: str | None) -> None:
    """Create the folders of a run. A link in their place is not followed."""
    folder = root / RUNS_FOLDER
    own = folder / name
    is_new = not own.exists()
    parts = [own / part for part in ("artifacts", "values", "errors")]
    for place in (folder, folder / "state", own, *parts):
        place.mkdir(exist_ok=True)
        if place.is_symlink():
            raise InvalidInput(f"{place} is a link; remove it")
    inherited = None if before is None else folder / before / "artifacts"
    if is_new and inherited is not None and inherited.is_dir() and not inherited.is_symlink():
        shutil.copytree(inherited, parts[0], symlinks=True, dirs_exist_ok=True)
    ignore = folder / ".gitignore"
    with suppress(FileExistsError), ignore.open("x", encoding="ascii") as file:
        file.write("*\n")  # a link in its place is not followed


def _failed(result: RunResult) -> StepResult:
    return StepResult(
        status="failed",
        output=result.text,
        error=f"{result.reason}: {result.detail or ''}".rstrip(": "),
        is_transient=result.reason in _TRANSIENT,
        cost_usd=result.cost_usd,
    )
