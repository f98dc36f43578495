"""How the harness runs a thread: tool calls, hooks, budgets, context, pinned definitions.

A tool call lives in the log as: proposed (`agent.tool_use`), `tool_call.authorized`,
`tool_call.started`, settled (`agent.tool_result`); `tool_call.in_doubt` after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.content import Block
from mainspring.core.events.agent import Effort
from mainspring.core.events.payload import Payload


class ToolCallAuthorized(Payload, frozen=True, kw_only=True, tag="tool_call.authorized"):
    """A gate's decision on one call, naming what decided."""

    tool_use_id: str
    decision: Literal["allow", "ask", "deny"]
    gate: Literal["rule", "mode", "hook", "guardrail", "person", "grant", "default"]
    rule: str | None = None
    reason: str | None = None
    call_hash: str | None = None
    """Hash of the exact call and its preview; an approval of any other is void."""
    preview: str | None = None
    """What the call would do, as shown to the person who decides."""
    updated_input: dict[str, object] | None = None
    """The input that runs instead of the original one."""


class ToolCallStarted(Payload, frozen=True, kw_only=True, tag="tool_call.started"):
    tool_use_id: str
    idempotency_key: str
    attempt: int = 1
    sandbox: str | None = None
    """The sandbox that it runs in: backend, level and hash of the flags."""
    by_client: bool = False
    """The client runs it and sends the result as an event."""


class ToolCallInDoubt(Payload, frozen=True, kw_only=True, tag="tool_call.in_doubt"):
    """The call had started but not settled when the session woke; `policy` is how to settle it."""

    tool_use_id: str
    policy: Literal["retry", "probe", "ask", "report"]


class ToolCallStashed(Payload, frozen=True, kw_only=True, tag="tool_call.stashed"):
    """A value that a restarted call gets back; the newest one replaces the others."""

    tool_use_id: str
    value: object


class OutputProduced(Payload, frozen=True, kw_only=True, tag="output.produced"):
    """The structured output of the agent, valid for its output type. It ends the run."""

    tool_use_id: str
    value: object


class ThreadHandedOff(Payload, frozen=True, kw_only=True, tag="thread.handed_off"):
    """This thread ends, and another agent continues the conversation in a thread of its own."""

    to_session_thread_id: str
    to_agent_name: str
    tool_use_id: str


class ProgramCallStarted(Payload, frozen=True, kw_only=True, tag="program_call.started"):
    """A program that the model wrote calls a tool, and the call is allowed."""

    tool_use_id: str
    """The call that runs the program."""
    call_id: str
    name: str
    input: dict[str, object]
    gate: str
    rule: str | None = None


class ProgramCallEnded(Payload, frozen=True, kw_only=True, tag="program_call.ended"):
    """The result for the program; the model only sees what the program returns."""

    tool_use_id: str
    call_id: str
    name: str
    is_error: bool
    content: tuple[Block, ...]


class HookRan(Payload, frozen=True, kw_only=True, tag="hook.ran"):
    hook_event: str
    handler: str
    outcome: Literal["ok", "blocked", "failed", "timed_out"]
    tool_use_id: str | None = None
    reason: str | None = None
    milliseconds: int | None = None


class LoopContinued(Payload, frozen=True, kw_only=True, tag="loop.continued"):
    reason: str
    detail: str | None = None


class ContextStatus(Payload, frozen=True, kw_only=True, tag="context.status"):
    """The status block at the end of a request: goal, done, now, left, budget."""

    text: str


class ContextAdded(Payload, frozen=True, kw_only=True, tag="context.added"):
    """Context for the model from a hook."""

    text: str
    source: str


class MessageWithheld(Payload, frozen=True, kw_only=True, tag="message.withheld"):
    """A hook withheld a user's message from the model."""

    event_id: str
    reason: str | None = None


class BudgetReserved(Payload, frozen=True, kw_only=True, tag="budget.reserved"):
    reservation_id: str
    cost_usd: str
    input_tokens: int = 0
    output_tokens: int = 0


class BudgetSettled(Payload, frozen=True, kw_only=True, tag="budget.settled"):
    reservation_id: str
    cost_usd: str


class ProviderFailedOver(Payload, frozen=True, kw_only=True, tag="provider.failed_over"):
    from_model: str
    to_model: str
    reason: str


class PolicyAdopted(Payload, frozen=True, kw_only=True, tag="policy.adopted"):
    """The rules and hooks of this session, even if their files change."""

    policy: str
    """Hash of the blob that contains them."""
    mode: str


class AgentAdopted(Payload, frozen=True, kw_only=True, tag="agent.adopted"):
    """The agent's definition in this session, even if its files change."""

    definition: str
    """Hash of the blob that contains it."""
    version: str | None = None


class ThreadStopped(Payload, frozen=True, kw_only=True, tag="thread.stopped"):
    """Another thread interrupts this one."""

    by_session_thread_id: str


class SkillUsed(Payload, frozen=True, kw_only=True, tag="skill.used"):
    """The model has the text of a skill from here on."""

    name: str
    hash: str
    by: Literal["model", "user", "path", "agent"]
    """`agent`: the definition of a subagent loads it from the start."""
    tool_use_id: str | None = None
    allowed_tools: tuple[str, ...] = ()
    """Permission rules that allow calls until the run ends."""
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    """`model` and `effort` apply until the run ends."""
    effort: Effort | None = None


class ToolsLoaded(Payload, frozen=True, kw_only=True, tag="tools.loaded"):
    """Deferred tools whose schemas the model has from here on."""

    names: tuple[str, ...]


class Todo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodosWritten(Payload, frozen=True, kw_only=True, tag="todos.written"):
    """The whole task list, as older versions wrote it."""

    todos: tuple[Todo, ...]


TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed", "deleted"]


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task of a thread's task list."""

    id: str
    subject: str
    status: TaskStatus = "pending"
    description: str = ""
    blocked_by: tuple[str, ...] = ()
    """Ids of tasks that must be completed before this one begins."""
    notes: tuple[str, ...] = ()

    def open_blockers(self, tasks: Mapping[str, Task]) -> list[str]:
        """The ids of those tasks that must be completed first."""
        return [
            blocker
            for blocker in self.blocked_by
            if blocker in tasks and tasks[blocker].status not in ("completed", "deleted")
        ]


class TaskWritten(Payload, frozen=True, kw_only=True, tag="task.written"):
    """The new state of a task, which replaces an earlier one with the same id."""

    task: Task


HarnessPayload: TypeAlias = (
    ToolCallAuthorized
    | ToolCallStarted
    | ToolCallInDoubt
    | ToolCallStashed
    | OutputProduced
    | ThreadHandedOff
    | ProgramCallStarted
    | ProgramCallEnded
    | HookRan
    | LoopContinued
    | ContextStatus
    | ContextAdded
    | MessageWithheld
    | BudgetReserved
    | BudgetSettled
    | ProviderFailedOver
    | PolicyAdopted
    | AgentAdopted
    | ThreadStopped
    | SkillUsed
    | ToolsLoaded
    | TodosWritten
    | TaskWritten
)
