"""A `StepRunner` without sessions: agents and programs are functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mainspring.core.envelope import Event
from mainspring.core.events import HookRan, WorkflowRunControlled
from mainspring.core.sender import Sender
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.approvals import Answer, answer_approval
from mainspring.runtime.workflows.engine import RunRequest, read_run, run_workflow, start_run
from mainspring.runtime.workflows.run_context import RunLimits
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.run_state import RunState
from mainspring.runtime.workflows.step_runner import AgentStep, ProgramStep, StepResult

PERSON = Sender(kind="person", id="cli:anna")


def says(text: str) -> StepResult:
    return StepResult(status="completed", output=text)


@dataclass(slots=True)
class FakeSteps:
    answer: Callable[[AgentStep], StepResult] = lambda step: says(f"did {step.path}")
    program: Callable[[ProgramStep], StepResult] = lambda step: says(f"ran {step.path}")
    workspace: str = "commit 1"
    """What the evidence program of a gate prints."""
    editors: set[str] = field(default_factory=set[str])
    """Paths of nodes that change files."""
    ran: list[str] = field(default_factory=list[str])
    prompts: dict[str, str] = field(default_factory=dict[str, str])
    programs: dict[str, ProgramStep] = field(default_factory=dict[str, ProgramStep])
    notices: list[str] = field(default_factory=list[str])
    waits: list[float] = field(default_factory=list[float])
    sessions: dict[str, str] = field(default_factory=dict[str, str])

    async def run_agent(self, step: AgentStep) -> StepResult:
        self.ran.append(step.path)
        self.sessions[step.session_id] = step.path
        self.prompts[step.path] = step.prompt
        return self.answer(step)

    async def run_program(self, step: ProgramStep) -> StepResult:
        if step.path.endswith("/evidence"):
            return says(self.workspace)
        self.ran.append(step.path)
        self.programs[step.path] = step
        return self.program(step)

    async def open_worktree(self, name: str, workspace: Path | None) -> Path:
        return Path("/worktrees", name)

    async def prepare_folder(
        self, workspace: Path | None, name: str, before: str | None = None
    ) -> Path:
        return (workspace or Path("/project")) / ".workflow-runs" / name

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def notify(self, writer: Writer, message: str, kind: str) -> Sequence[HookRan]:
        self.notices.append(message)
        return ()

    async def changed_files(self, session_id: str) -> bool:
        return self.sessions.get(session_id) in self.editors


def files_of(*texts: str, **commands: str) -> RunFiles:
    """The first text is the workflow that runs."""
    names = [text.partition("name: ")[2].partition("\n")[0] for text in texts]
    workflows = dict(zip(names, texts, strict=True))
    return RunFiles(main=names[0], workflows=workflows, commands=commands)


async def start(log: SessionLog, files: RunFiles, **request: object) -> str:
    run_id, _ = await start_run(log, RunRequest(files=files, **request), PERSON)  # pyright: ignore[reportArgumentType]
    return run_id


async def play(
    log: SessionLog,
    files: RunFiles,
    steps: FakeSteps,
    *,
    max_steps: int = 1000,
    tell: Callable[[Event], None] = lambda _: None,
    **request: object,
) -> tuple[str, RunState]:
    run_id = await start(log, files, **request)
    limits = RunLimits(max_steps=max_steps)
    return run_id, await run_workflow(log, run_id, steps, limits=limits, on_event=tell)


async def answer(
    log: SessionLog,
    run_id: str,
    *,
    allow: bool = True,
    choice: str | None = None,
    text: str | None = None,
    node: str = "",
) -> None:
    """Answer the newest open gate, or that of a node."""
    state = await read_run(log, run_id)
    open_gates = [item for item in state.open_approvals if node in item.request.subject.id]
    reply = Answer(decision="allow" if allow else "deny", choice=choice, text=text)
    await log.submit(run_id, answer_approval(open_gates[-1], reply), sender=PERSON)


async def control(log: SessionLog, run_id: str, action: str, node: str | None = None) -> None:
    payload = WorkflowRunControlled(workflow_run_id=run_id, action=action, node=node)  # pyright: ignore[reportArgumentType]
    await log.submit(run_id, payload, sender=PERSON)


def statuses(state: RunState) -> dict[str, str]:
    return {path: node.status for path, node in state.nodes.items()}
