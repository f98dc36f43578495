"""The result of a run with its typed output, and the calls that wait for approval."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Generic, Literal, TypeAlias, cast

from mainspring.core.content import plain_text
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.errors import OutputMissing
from mainspring.core.events import (
    AgentCustomToolUse,
    AgentMcpToolUse,
    AgentMessage,
    AgentToolUse,
    HookRan,
    LoopContinued,
    StatusIdle,
    StatusRunning,
    ThreadCreated,
    Usage,
)
from mainspring.harness.event_sink import ignore_event
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.harness.stop_reasons import Ended, EndReason
from mainspring.runtime.agent import Agent, AnyAgent, Output

OK_REASONS: tuple[EndReason, ...] = ("completed", "compacted")
_NO_OUTPUT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[Output]):
    """The result of a run; turns, usage and cost are totals of the session."""

    session_id: str
    reason: EndReason
    text: str
    """The last message of the agent in this run."""
    turns: int
    usage: Usage
    cost_usd: Decimal
    detail: str | None = None
    waiting_for: tuple[str, ...] = ()
    failed_checks: Mapping[str, str] = field(default_factory=dict[str, str])
    """The problems of an answer that failed checks but was returned, by check."""
    value: object = field(default=_NO_OUTPUT, repr=False)
    """The output, if there is one; read `output`, which is typed."""

    @property
    def ok(self) -> bool:
        return self.reason in OK_REASONS

    @property
    def output(self) -> Output:
        """The agent's output: its text, or a value of its output type.

        Raises:
            OutputMissing: the run ended without a valid output.
        """
        if self.value is _NO_OUTPUT:
            raise OutputMissing(self.session_id, self.reason, self.detail)
        return cast("Output", self.value)


def output_value(agent: AnyAgent, thread_tree: ThreadTree, ended: Ended, text: str) -> object:
    """The output of the newest run of the main thread; `_NO_OUTPUT` if it has none, for example
    because a guardrail stopped it."""
    if ended.reason not in OK_REASONS:
        return _NO_OUTPUT
    if agent.output is None:
        return text
    produced = thread_tree.active.thread.output
    return _NO_OUTPUT if produced is None else agent.output.read(produced.value)


class FinalMessage:
    """The last message of the agent in a run, folded from its events."""

    def __init__(self, thread_id: str, forward: Callable[[Event], None]) -> None:
        self._thread_id = thread_id
        self._forward = forward
        self._texts: list[str] = []
        self.failed_checks: dict[str, str] = {}

    def on_event(self, event: Event) -> None:
        if event.thread_id == self._thread_id:
            self._apply(event.payload)
        self._forward(event)

    def _apply(self, payload: AnyPayload) -> None:
        match payload:
            case AgentMessage(content=content):
                self._texts.append(plain_text(content))
            case AgentToolUse() | AgentMcpToolUse() | AgentCustomToolUse():
                self._texts.clear()
            case LoopContinued(reason="stop_hook_feedback" | "outcome_revision"):
                self._texts.clear()  # an answer that was sent back does not count
            case StatusRunning():
                self._texts.clear()
                self.failed_checks.clear()
            case HookRan(hook_event="Check"):
                self._note_check(payload)
            case ThreadCreated(mode="handoff", session_thread_id=thread_id):
                self._thread_id = thread_id
                self._texts.clear()
            case _:
                pass

    def _note_check(self, check: HookRan) -> None:
        self.failed_checks.pop(check.handler, None)
        if check.outcome != "ok":
            self.failed_checks[check.handler] = check.reason or ""

    @property
    def text(self) -> str:
        return "\n\n".join(self._texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A tool call that waits for a person."""

    call_id: str
    tool: str
    input: Mapping[str, object]
    reason: str | None = None
    """Why it needs approval."""
    preview: str | None = None
    """The effects of the call, if the tool can preview them."""


CallbackAnswer: TypeAlias = bool | str | None
"""`True` allows, `False` denies, a text denies and is shown to the model; `None` leaves the call
waiting."""
OnApproval: TypeAlias = Callable[[ApprovalRequest], CallbackAnswer | Awaitable[CallbackAnswer]]


def approval_requests(thread_tree: ThreadTree) -> list[ApprovalRequest]:
    """The calls that wait for a person to allow or deny them; questions with a form are not among
    them."""
    calls = [call for node in thread_tree.nodes.values() for call in node.thread.unsettled_calls()]
    return [
        ApprovalRequest(
            call_id=call.id,
            tool=call.name,
            input=call.input,
            reason=call.reason,
            preview=call.preview,
        )
        for call in calls
        if call.wants_answer and call.kind == "tool" and not call.is_suspended
    ]


async def ask_caller(
    thread_tree: ThreadTree, on_approval: OnApproval
) -> dict[str, tuple[Literal["allow", "deny"], str | None]]:
    """The caller's answers to calls that wait, by their ids, each with the reason of a refusal."""
    answers: dict[str, tuple[Literal["allow", "deny"], str | None]] = {}
    for request in approval_requests(thread_tree):
        answer = on_approval(request)
        answer = await answer if inspect.isawaitable(answer) else answer
        if answer is not None:
            text = answer if isinstance(answer, str) else None
            answers[request.call_id] = ("allow" if answer is True else "deny", text)
    return answers


def run_result(
    agent: Agent[Output],
    session_id: str,
    ended: Ended,
    thread_tree: ThreadTree,
    final_message: FinalMessage,
) -> RunResult[Output]:
    text = final_message.text
    main = thread_tree.main
    chain = thread_tree.with_ancestors(thread_tree.active)
    return RunResult(
        session_id=session_id,
        reason=ended.reason,
        text=text,
        turns=sum(node.thread.turns for node in chain),
        usage=main.spend_account.usage,
        cost_usd=main.spend_account.spending.cost_usd,
        detail=ended.detail,
        waiting_for=ended.waiting_for,
        failed_checks=final_message.failed_checks,
        value=output_value(agent, thread_tree, ended, text),
    )


def result_of_log(
    agent: Agent[Output], session_id: str, events: Sequence[Event], main_id: str
) -> RunResult[Output]:
    """The result of the last run."""
    thread_tree, text = ThreadTree(main_id), FinalMessage(main_id, ignore_event)
    run_end = Ended("requires_action")
    for event in events:
        thread_tree.apply(event)
        text.on_event(event)
        is_current = event.thread_id == thread_tree.active.id
        if is_current and isinstance(event.payload, StatusIdle):
            idle = event.payload
            reason = cast("EndReason", idle.reason or "completed")
            run_end = Ended(reason, idle.detail, idle.stop_reason.event_ids)
    return run_result(agent, session_id, run_end, thread_tree, text)
