"""Runs the agents and programs of a workflow as sessions, with what their nodes declare and no more
than their runner has."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias, cast

import anyio
import msgspec
from anyio import to_thread

from mainspring.core.content import BlobBlock, TextBlock
from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput, SessionExists, SessionNotFound
from mainspring.core.events import AgentToolResult, Effort, WorkspaceSnapshotted
from mainspring.core.ports import Worktrees
from mainspring.core.sender import Origin
from mainspring.files.atomic_file import write_atomic
from mainspring.function_tools.json_schema import schema_problems, supported_keywords
from mainspring.harness.budget import Budget
from mainspring.harness.permissions.policy import PolicyRule
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.harness.toolbox import Toolbox
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import ProgramOptions, RunOptions
from mainspring.runtime.session.run_result import OK_REASONS, OnApproval, RunResult
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.session_context import SetupRequest, ToolboxFactory
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.subagent import Subagent
from mainspring.runtime.workflows.format.definition import EFFORTS, Node
from mainspring.runtime.workflows.format.program_text import MAX_VARIABLE_BYTES
from mainspring.runtime.workflows.format.references import parse_json
from mainspring.runtime.workflows.program_model import NAME, TOOL, ProgramModel
from mainspring.runtime.workflows.run_budget import run_budget
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepResult

RUNS_FOLDER = ".workflow-runs"
"""In the workspace, so that agents and sandboxed programs reach it. Git ignores it."""
_MAX_OUTPUT_BYTES = 4_000_000
"""The output of one program: twice what a reviewer of it could read in a day."""
_EMPTY = "(no output)"
_TRUSTED_PROGRAM = PolicyRule(text="Bash", behavior="allow")
"""Whoever trusts a workflow by its hash has allowed its programs. Rules that deny or ask, modes and
protected files still apply, and so does the sandbox."""
_TRANSIENT = frozenset(("model_error", "recovery_exhausted"))


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
    open_worktrees: Callable[[Path, Path], Worktrees | None]
    """Takes a workspace and the folder for its worktrees."""
    worktrees: Path
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
        agent = self._agent(step)
        history = ()
        if step.continues is not None:
            source = await self.runtime.resume(agent, step.continues)
            history = await source.history()
        session = await self._open(agent, step.session_id, step.path, step.workspace, history)
        await session.send(step.prompt, client_id="prompt")
        result = await self._run(session)
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
        options = replace(
            base,
            rules=(*base.rules, _TRUSTED_PROGRAM),
            program=ProgramOptions(variables=variables, max_output_bytes=_MAX_OUTPUT_BYTES),
        )
        agent = Agent(
            name="program", model=NAME, built_ins=(TOOL,), memory="off", folder=self.agent.folder
        )
        session = await self._open(agent, step.session_id, step.path, None, (), options)
        call: dict[str, object] = {"command": command}
        if step.timeout_ms is not None:
            call["timeout_ms"] = step.timeout_ms
        await session.send(msgspec.json.encode(call).decode(), client_id="prompt")
        result = await self._run(session)
        if result.reason == "requires_action":
            return StepResult(status="waiting")
        if result.reason not in OK_REASONS:
            return _failed(result)
        return await self._program_result(session, step)

    async def open_worktree(self, name: str, workspace: Path | None) -> Path:
        workspace = workspace or self.runtime.options.workspace
        if workspace is None:
            raise InvalidInput("a worktree needs a workspace")
        worktrees = self.open_worktrees(workspace, self.worktrees)
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
        workspace: Path | None,
        history: Sequence[object] = (),
        options: RunOptions | None = None,
    ) -> Session:
        base = self.runtime
        runtime = Runtime(
            base.log,
            base.models,
            toolbox_factory=declared_tools(base.toolbox_factory),
            options=options or self._options(workspace),
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

    async def _run(self, session: Session) -> RunResult:
        result = await session.run(on_approval=self.on_approval)
        return result or await session.last_result()

    def _options(self, workspace: Path | None) -> RunOptions:
        options = self.runtime.options
        return options if workspace is None else replace(options, workspace=workspace)

    def _agent(self, step: AgentStep) -> Agent:
        """The runner's agent with what the node declares: fewer tools, only its skills."""
        node, workflow, base = step.node, step.workflow, self.agent
        limits = base.limits
        if node.max_budget_usd is not None:
            cost = Decimal(str(node.max_budget_usd))
            smaller = cost if limits.max_cost_usd is None else min(cost, limits.max_cost_usd)
            limits = replace(limits, max_cost_usd=smaller)
        wanted = (node.model or workflow.model, node.fallback_model or workflow.fallback_model)
        names = [name for name in wanted if name is not None and not base.has_one_model]
        related = [self.runtime.models.related(name, base.model) for name in names]
        model = ",".join(related if wanted[0] and related else [base.model, *related])
        effort = node.effort or workflow.effort
        checks = [*base.checks]
        if (schema := node.output_format) is not None:
            checks.append(_format_check(schema))
        prompt = step.system_prompt
        if schema is not None:
            prompt = f"{prompt or base.instructions}\n\n{_format_instruction(schema)}".strip()
        return replace(
            base,
            name=_agent_name(node),
            instructions=base.instructions if prompt is None else prompt,
            model=model,
            effort=base.effort if effort is None else cast("Effort", _effort(effort)),
            built_ins=allowed_tools(base.built_ins, node),
            skills=_declared_skills(base.skills, node),
            subagents=[_subagent(name, entry) for name, entry in node.agents.items()],
            limits=limits,
            checks=checks,
            version=None,
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


def declared_tools(factory: ToolboxFactory) -> ToolboxFactory:
    """The toolbox without tools of MCP servers: a node has what it declares."""

    @asynccontextmanager
    async def open_toolbox(setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        async with factory(setup) as toolbox:
            tools = [tool for tool in toolbox.tools if not tool.spec.name.startswith("mcp__")]
            yield replace(toolbox, tools=tools, changes=None)

    return open_toolbox


def allowed_tools(built_ins: Sequence[str], node: Node) -> tuple[str, ...]:
    """The built-in tools of a node: those that it names, of those that its runner has. An entry
    with a pattern allows nothing, since the pattern could not be kept."""
    allowed = tuple(built_ins)
    if node.allowed_tools is not None:
        names = [canonical_name(item) for item in node.allowed_tools if "(" not in item]
        allowed = tuple(name for name in names if name in built_ins or "*" in built_ins)
    denied = {canonical_name(item.partition("(")[0].strip()) for item in node.denied_tools}
    return allowed if not denied else tuple(item for item in allowed if item not in denied)


def _declared_skills(skills: Sequence[Skill], node: Node) -> list[Skill]:
    found = [skill for skill in skills if skill.name in node.skills]
    missing = set(node.skills) - {skill.name for skill in found}
    if missing:
        raise InvalidInput(f"there is no trusted skill {sorted(missing)[0]}")
    return found


def _subagent(name: str, entry: dict[str, object]) -> Subagent:
    tools, model = entry.get("tools"), entry.get("model")
    return Subagent(
        name=name,
        description=str(entry.get("description") or name),
        prompt=str(entry.get("prompt") or ""),
        model=model if isinstance(model, str) else None,
        tools=tuple(map(str, cast("list[object]", tools))) if isinstance(tools, list) else None,
    )


def _agent_name(node: Node) -> str:
    return node.id[:60]


def _effort(effort: str) -> str:
    return "low" if effort == "minimal" else effort if effort in EFFORTS else "none"


def _format_instruction(schema: dict[str, object]) -> str:
    text = msgspec.json.encode(schema).decode()
    return f"Answer with one JSON value that fits this JSON Schema, and nothing else:\n{text}"


def _format_check(schema: dict[str, object]) -> Callable[[str], str | None]:
    def output_format(text: str) -> str | None:
        problem = format_problem(schema, text)
        return None if problem is None else f"{problem}. {_format_instruction(schema)}"

    return output_format


def format_problem(schema: dict[str, object], text: str) -> str | None:
    """Why an answer is not a value of the schema."""
    value = parse_json(text)
    if value is None:
        return "the answer is not JSON"
    return next(schema_problems(value, supported_keywords(schema), "the answer"), None)


def _failed(result: RunResult) -> StepResult:
    return StepResult(
        status="failed",
        output=result.text,
        error=f"{result.reason}: {result.detail or ''}".rstrip(": "),
        is_transient=result.reason in _TRANSIENT,
        cost_usd=result.cost_usd,
    )
