"""The state of a thread: a fold of its log, the same live and after a crash.

Any prefix of a log folds to a valid thread. Nothing here has effects; the loop reads the state to
decide what is next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.envelope import AnyPayload, Event
from mainspring.harness.context.prompts import outcome_prompt
from mainspring.harness.context.transcript import Transcript
from mainspring.harness.context.working_state import WORKING_STATE, SavedState
from mainspring.harness.state import outcome_state, repetition, session_state
from mainspring.harness.state.open_call import CallResult, OpenCall, call_id_of, proposed_call
from mainspring.harness.state.outcome_state import OpenOutcome
from mainspring.harness.state.repetition import Repetition
from mainspring.harness.state.session_state import SessionState
from mainspring.harness.stop_reasons import INTERRUPTED_REASONS

OUTPUT_TOOL = "final_result"
"""The tool with which the model returns a value of the agent's output type."""
JUDGEMENT = "judgement"
"""The purpose of a model request by the authorizer."""
RECALL = "recall"
"""The purpose of a request that selects memories for a message."""
SEARCH = "search"
"""The purpose of a request with which the model's API searches the web."""
EXTRACT = "extract"
"""The purpose of a request that extracts something to remember."""
END_ONLY = frozenset((JUDGEMENT, RECALL, SEARCH, EXTRACT))
"""Purposes of requests of which only the end is recorded, for its cost."""
SUMMARY = "summary"
"""The purpose of a request that summarizes the conversation."""


class RetryCounts(Struct, kw_only=True):
    """Recovery steps used since the last complete reply of the model."""

    wakes: int = 0
    escalated: bool = False
    continued: int = 0
    compacted: int = 0
    broken_streams: int = 0
    stop_feedback: int = 0
    outages: int = 0
    """How often a run was ended because no model answered, to be continued later."""


class Thread(Struct, kw_only=True):
    id: str
    transcript: Transcript = field(default_factory=Transcript)
    round: dict[str, OpenCall] = field(default_factory=dict[str, OpenCall])
    """The calls of the newest reply, in their order."""
    retries: RetryCounts = field(default_factory=RetryCounts)
    repetition: Repetition = field(default_factory=Repetition)
    status: str | None = None
    """The last status block that the model has read."""
    is_in_outage: bool = False
    """Whether the newest model request has failed, and waits to be sent again."""
    has_open_status: bool = False
    """The next request already has its status block."""
    tasks: dict[str, events.Task] = field(default_factory=dict[str, events.Task])
    """Its task list, by id, in the order of creation."""
    turns: int = 0
    messages: int = 0
    """The number of messages from the user."""
    unsent: dict[str, Event] = field(default_factory=dict[str, Event])
    """Messages that have not been sent to the model yet."""
    running: bool = False
    interrupted: bool = False
    redirected: bool = False
    """Interrupted by a message that says what to do instead."""
    open_request: str | None = None
    """A model request that was started and has not ended."""
    open_purpose: str | None = None
    """The purpose of that request, if it is not a turn of the conversation."""
    saved_state: SavedState = SavedState()
    """The working state, before the last compaction."""
    summary_failures: int = 0
    """Failed summaries in a row in this run; after a few, no further summary is requested."""
    open_reservation: events.BudgetReserved | None = None
    prefix: str | None = None
    model: str | None = None
    compacted: bool = False
    """A compaction came after the last model request."""
    pending_compaction: events.CompactionRequested | None = None
    """A compaction that was requested and is not done yet."""
    last_reason: str | None = None
    """Why the last run ended."""
    outcome: OpenOutcome | None = None
    """The outcome that its work is graded against, until there is a final verdict."""
    session_state: SessionState = field(default_factory=SessionState)
    output: events.OutputProduced | None = None
    """The output of the newest reply, if it has one; then the run is done."""
    is_handed_off: bool = False
    """Another thread continues the conversation; this one does not run again."""
    invalid_outputs: int = 0
    """The number of invalid outputs since the last message of the user."""

    def apply(self, event: Event) -> None:
        """Apply one event. Events of other threads change nothing."""
        if event.thread_id != self.id:
            return
        payload = event.payload
        kind = type(payload)
        if kind in repetition.RELEVANT:
            self.repetition = repetition.fold(self.repetition, event.id, payload)
        if kind in outcome_state.RELEVANT:
            self.outcome = outcome_state.fold(self.outcome, event)
        if kind in session_state.RELEVANT:
            self.session_state.apply(payload)
        if (handler := _HANDLERS.get(kind)) is not None:
            handler(self, event, payload)

    def unsettled_calls(self) -> list[OpenCall]:
        return [call for call in self.round.values() if not call.settled]

    def interrupt(self) -> None:
        """Mark a running thread as interrupted; an idle one does not change."""
        self.interrupted = self.running or not self.is_answered or bool(self.unsettled_calls())
        self.redirected = False

    def discard_in_progress(self, seq: int) -> None:
        """The session was forked or moved here: its run, request, approvals and effects in progress
        belong to the parent. The part of a reply that had arrived stays."""
        if self.open_request is not None and self.open_purpose is None:
            self.transcript.end_reply(seq, is_error=True)
        self.running = self.interrupted = self.redirected = False
        self.open_request = self.open_purpose = self.open_reservation = None
        self.retries = RetryCounts()
        for call in self.unsettled_calls():
            self.round[call.id] = call.without_decisions()

    @property
    def is_answered(self) -> bool:
        """Whether the model has replied to the last message."""
        return self.transcript.is_answered


def fold(log: Iterable[Event], *, thread_id: str) -> Thread:
    thread = Thread(id=thread_id)
    for event in log:
        thread.apply(event)
    return thread


def _user_message(thread: Thread, event: Event, payload: events.UserMessage) -> None:
    thread.retries.stop_feedback = thread.invalid_outputs = 0
    thread.redirected = thread.interrupted
    thread.messages += 1
    thread.unsent[event.id] = event
    thread.transcript.add_user(event.seq, payload.content)


def _define_outcome(thread: Thread, event: Event, payload: events.UserDefineOutcome) -> None:
    thread.retries.stop_feedback = 0
    thread.redirected = thread.interrupted
    thread.messages += 1
    thread.transcript.add_user(event.seq, (TextBlock(outcome_prompt(payload)),))


def _withhold(thread: Thread, _event: Event, payload: events.MessageWithheld) -> None:
    if (event := thread.unsent.pop(payload.event_id, None)) is not None:
        assert isinstance(event.payload, events.UserMessage)
        thread.messages -= 1
        thread.transcript.withhold(event.seq, event.payload.content)


def _interrupt(
    thread: Thread, _event: Event, payload: events.UserInterrupt | events.ThreadStopped
) -> None:
    thread.pending_compaction = None
    if isinstance(payload, events.ThreadStopped) or payload.session_thread_id in (None, thread.id):
        thread.interrupt()


def _fork_or_move(
    thread: Thread, event: Event, _payload: events.SessionForked | events.SessionReceived
) -> None:
    thread.pending_compaction = None
    thread.discard_in_progress(event.seq)


def _running(thread: Thread, _event: Event, _payload: events.StatusRunning) -> None:
    thread.running = True


def _idle(thread: Thread, event: Event, payload: events.StatusIdle) -> None:
    thread.running = False
    thread.interrupted = thread.redirected = False
    thread.last_reason = payload.reason
    if payload.reason == "compacted":
        thread.pending_compaction = None
    thread.retries = RetryCounts()
    thread.summary_failures = 0
    thread.transcript.end_run(event.seq, is_completed=payload.reason == "completed")
    if payload.reason in INTERRUPTED_REASONS:
        thread.transcript.is_answered = True  # the user withdrew the message: no reply is due


def _rescheduled(thread: Thread, _event: Event, _payload: events.StatusRescheduled) -> None:
    thread.running = False
    thread.retries.outages += 1


def _wake(thread: Thread, _event: Event, payload: events.SessionWoken) -> None:
    thread.retries.wakes = payload.attempt


def _failed(thread: Thread, _event: Event, payload: events.SessionFailed) -> None:
    is_retried = payload.error.retry_status.type == "retrying"
    if is_retried and payload.error.failure is not None:
        thread.is_in_outage = thread.open_request is not None


def _request_started(thread: Thread, event: Event, payload: events.ModelRequestStarted) -> None:
    thread.is_in_outage = False
    thread.open_request = event.id
    thread.open_purpose = payload.purpose
    if payload.purpose is not None:
        return
    thread.prefix = payload.prefix
    thread.model = payload.model
    thread.compacted = thread.has_open_status = False
    thread.unsent = {}
    thread.round = {}
    thread.output = None
    thread.transcript.begin_reply(event.seq)


def _request_ended(thread: Thread, event: Event, payload: events.ModelRequestEnded) -> None:
    if payload.purpose in END_ONLY:
        return  # outside the conversation, while another request may be open
    purpose = payload.purpose or thread.open_purpose
    thread.open_request = thread.open_purpose = None
    if purpose is not None:
        if purpose == SUMMARY:
            if not payload.is_error:
                thread.summary_failures = 0
            elif payload.stop_reason != "interrupted":
                thread.summary_failures += 1
        return
    thread.transcript.end_reply(event.seq, is_error=payload.is_error)
    if not payload.is_error:
        thread.turns += 1
        thread.transcript.apply_usage(payload.model_usage)
        if payload.stop_reason not in ("max_tokens", "pause_turn"):
            thread.retries = RetryCounts(stop_feedback=thread.retries.stop_feedback)


def _tool_use(thread: Thread, event: Event, _payload: AnyPayload) -> None:
    call = proposed_call(event)
    assert call is not None
    thread.round[call.id] = call
    thread.transcript.add_tool_use(call.id, call.name, dict(call.input))


def _call_event(thread: Thread, event: Event, payload: AnyPayload) -> None:
    if call := thread.round.get(call_id_of(payload) or ""):
        thread.round[call.id] = call.after(event)


def _call_start(thread: Thread, event: Event, payload: events.ToolCallStarted) -> None:
    if call := thread.round.get(payload.tool_use_id):
        thread.session_state.start(call.name)
    _call_event(thread, event, payload)


def _result(thread: Thread, event: Event, result: CallResult) -> None:
    call = thread.round.get(call_id_of(result) or "")
    if call is None or (settled := call.after(event)) is call:
        return
    thread.round[call.id] = settled
    thread.retries.wakes = 0
    thread.transcript.add_result(event.seq, call.id, result.content, result.is_error)
    thread.invalid_outputs += call.name == OUTPUT_TOOL and settled.failure == "invalid"
    if thread.output is not None or thread.is_handed_off:
        thread.transcript.is_answered = True


def _hand_off(thread: Thread, _event: Event, _payload: events.ThreadHandedOff) -> None:
    thread.is_handed_off = True


def _output(thread: Thread, _event: Event, payload: events.OutputProduced) -> None:
    thread.output = payload


_COUNTED_RETRIES = {
    "output_continued": "continued",
    "reactive_compact_retry": "compacted",
    "broken_stream_retry": "broken_streams",
    "stop_hook_feedback": "stop_feedback",
}


def _loop_continue(thread: Thread, event: Event, payload: events.LoopContinued) -> None:
    retries = thread.retries
    match payload.reason:
        case "output_escalated":
            retries.escalated = True
        case "compacted_retry":
            thread.pending_compaction = None
        case reason if reason in _COUNTED_RETRIES:
            count = _COUNTED_RETRIES[reason]
            setattr(retries, count, getattr(retries, count) + 1)
        case "outcome_revision":  # the outcome itself limits how often
            retries.stop_feedback = 0
        case "inbox_message":
            thread.interrupted = thread.redirected = False
        case _:
            pass
    if payload.detail is not None:
        thread.transcript.add_note(event.seq, payload.detail)


def _status(thread: Thread, event: Event, payload: events.ContextStatus) -> None:
    thread.status, thread.has_open_status = payload.text, True
    thread.transcript.add_note(event.seq, payload.text)


def _write_task(thread: Thread, _event: Event, payload: events.TaskWritten) -> None:
    thread.tasks[payload.task.id] = payload.task


def _write_todos(thread: Thread, _event: Event, payload: events.TodosWritten) -> None:
    thread.tasks.clear()  # in place, because the task tools share this dict
    for number, todo in enumerate(payload.todos, 1):
        task = events.Task(id=str(number), subject=todo.content, status=todo.status)
        thread.tasks[task.id] = task


def _add_context(thread: Thread, event: Event, payload: events.ContextAdded) -> None:
    thread.transcript.add_context(event.seq, payload.text)
    if payload.source == WORKING_STATE:
        thread.saved_state = SavedState(payload.text, thread.turns, thread.messages)


def workflow_report(ended: events.WorkflowRunEnded) -> tuple[TextBlock, ...]:
    """What an agent reads when a workflow that it has started ends."""
    result = ended.result
    if result.error is not None:
        text = f"{_RUN_ENDS[result.type]}: {result.error.message}"
    else:
        text = f"{_RUN_ENDS[result.type]}.\n\n{ended.output or '(no output)'}"
    return (TextBlock(f"The workflow {ended.workflow_run_id} {text}"),)


_RUN_ENDS = {"completed": "has completed", "error": "has failed", "stopped": "was stopped"}


def _request_compaction(thread: Thread, _event: Event, payload: events.CompactionRequested) -> None:
    thread.pending_compaction = payload


def _compact(thread: Thread, _event: Event, payload: events.ContextCompacted) -> None:
    if thread.transcript.compact(payload):
        thread.compacted = True
        thread.status = None  # it may have been in the removed messages


def _reserve_budget(thread: Thread, _event: Event, payload: events.BudgetReserved) -> None:
    if thread.open_reservation is None:  # else a request beside the open one, settled at once
        thread.open_reservation = payload


def _settle_budget(thread: Thread, _event: Event, payload: events.BudgetSettled) -> None:
    reservation = thread.open_reservation
    if reservation is not None and reservation.reservation_id == payload.reservation_id:
        thread.open_reservation = None


_HANDLERS: dict[type[AnyPayload], Callable[[Thread, Event, Any], None]] = {
    events.UserMessage: _user_message,
    events.UserDefineOutcome: _define_outcome,
    events.MessageWithheld: _withhold,
    events.SystemMessage: lambda thread, event, payload: thread.transcript.add_system(
        event.seq, payload.content
    ),
    events.ThreadMessageReceived: lambda thread, event, payload: thread.transcript.add_user(
        event.seq, payload.content
    ),
    events.WorkflowRunEnded: lambda thread, event, payload: thread.transcript.add_user(
        event.seq, workflow_report(payload)
    ),
    events.UserInterrupt: _interrupt,
    events.ThreadStopped: _interrupt,
    events.SessionForked: _fork_or_move,
    events.SessionImported: lambda thread, event, payload: thread.transcript.add_import(
        event.seq, payload.note
    ),
    events.SessionReceived: _fork_or_move,
    events.StatusRunning: _running,
    events.StatusIdle: _idle,
    events.StatusRescheduled: _rescheduled,
    events.SessionFailed: _failed,
    events.SessionWoken: _wake,
    events.ModelRequestStarted: _request_started,
    events.ModelRequestEnded: _request_ended,
    events.AgentMessage: lambda thread, _, payload: thread.transcript.add_text(payload.content),
    events.AgentThinking: lambda thread, _, payload: thread.transcript.add_thinking(payload),
    events.AgentToolUse: _tool_use,
    events.AgentMcpToolUse: _tool_use,
    events.AgentCustomToolUse: _tool_use,
    events.ToolCallAuthorized: _call_event,
    events.UserToolConfirmation: _call_event,
    events.ToolCallStarted: _call_start,
    events.ToolCallInDoubt: _call_event,
    events.ToolCallStashed: _call_event,
    events.OutputProduced: _output,
    events.ThreadHandedOff: _hand_off,
    events.ApprovalRequested: _call_event,
    events.ApprovalAnswered: _call_event,
    events.ApprovalVoided: _call_event,
    events.AgentToolResult: _result,
    events.AgentMcpToolResult: _result,
    events.UserCustomToolResult: _result,
    events.UserToolResult: _result,
    events.LoopContinued: _loop_continue,
    events.ContextStatus: _status,
    events.TaskWritten: _write_task,
    events.TodosWritten: _write_todos,
    events.ContextAdded: _add_context,
    events.CompactionRequested: _request_compaction,
    events.ContextCompacted: _compact,
    events.BudgetReserved: _reserve_budget,
    events.BudgetSettled: _settle_budget,
}
