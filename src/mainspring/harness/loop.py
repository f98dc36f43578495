"""The loop: look at the thread, take the next step, record what happened, repeat.

It keeps no state outside the log. If the process dies anywhere, the next one that runs the same
log continues where the log ends.
"""

from __future__ import annotations

from functools import partial

import anyio

from mainspring.core import events
from mainspring.core.tool import ToolResult
from mainspring.harness import hook_events
from mainspring.harness.context.compaction import compact_on_request
from mainspring.harness.limits import continuation
from mainspring.harness.model_outage import note_rescheduled
from mainspring.harness.outcomes import close_interrupted, evaluate_outcome
from mainspring.harness.run_inbox import receive, receive_during_run
from mainspring.harness.speculative_reads import SpeculativeReads
from mainspring.harness.state.repetition import LOOP_ERROR, NUDGE
from mainspring.harness.stop_reasons import (
    PROMPT_TOO_LONG_ERROR,
    Continue,
    Ended,
    Step,
    stop_reason,
)
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.crash_recovery import (
    INTERRUPTED_TEXT,
    in_doubt_policy,
    recovery_events,
)
from mainspring.harness.tool_calls.tool_pipeline import settle
from mainspring.harness.tool_calls.tool_rounds import run_round
from mainspring.harness.turn import take_turn
from mainspring.log.task_groups import background_tasks, retry_unavailable

WAKES_WITHOUT_PROGRESS = 5  # then the session ends with an error instead of waking for ever
FEEDBACK_IN_A_ROW = 3  # times that hooks refuse an end; then they are not asked again


async def run(context: ThreadContext) -> Ended | None:
    """Run the thread until it ends or waits; `None` if there was nothing to do."""
    watch = partial(context.writer.watch_interrupts, context.thread.id, context.interrupt)
    async with background_tasks() as group:
        group.start_soon(retry_unavailable, watch)
        context.speculative_reads = SpeculativeReads(group)
        stopped = await receive(context)
        ended = _begin(context) or stopped
        if ended is None and not context.thread.running:
            await context.event_sink.commit()  # nothing to do, but the inbox items are read
            return None
        return await _run(context, ended)


async def _run(context: ThreadContext, ended: Ended | None) -> Ended:
    while ended is None:
        step = await _next_step(context)
        match step:
            case Continue(reason, detail):
                context.note(events.LoopContinued(reason=reason, detail=detail))
            case Ended():
                ended = step
            case None:
                pass
        # Input is recorded between two steps only, so no message or mode changes a round that runs.
        # An interrupt stops the step at once; it is recorded here, and the next step settles calls.
        if ended is None:
            ended = await receive_during_run(context, if_changed=True)
        elif await _has_new_input(context, ended):
            ended = None
    # A finished thread whose children wait for people waits with them.
    pending = (
        context.siblings.pending_calls_below(context.thread.id)
        if ended.reason == "completed"
        else ()
    )
    ended = Ended("requires_action", waiting_for=pending) if pending else ended
    await _note_end(context, ended)
    return ended


async def _note_end(context: ThreadContext, ended: Ended) -> None:
    if ended.reason == "rescheduled":
        return await note_rescheduled(context)
    if ended.reason == "prompt_too_long":
        error = events.ErrorDetail(
            type=PROMPT_TOO_LONG_ERROR,
            message=f"{ended.detail or 'no model was asked'} (the prompt is too long)",
            retry_status=events.RetryStatus(type="terminal"),
            failure="prompt_too_long",
        )
        context.note(events.SessionFailed(error=error))
    if ended.reason in ("model_error", "recovery_exhausted", "prompt_too_long"):
        await context.run_hooks(hook_events.stop_failed(ended.reason, ended.detail))
    await context.note_idle(
        events.StatusIdle(stop_reason=stop_reason(ended), reason=ended.reason, detail=ended.detail)
    )
    return None


def _begin(context: ThreadContext) -> Ended | None:
    """Start a run, or take over one that a crash left open."""
    thread = context.thread
    if not thread.running:
        if not thread.is_answered or thread.pending_compaction or _is_answerable(context):
            context.note(events.StatusRunning())
        return None
    # a thread that only waits for its children is not expected to make progress
    is_waiting = thread.is_answered and not thread.unsettled_calls() and thread.open_request is None
    is_waiting_for_children = is_waiting and context.siblings.has_unfinished_children(thread.id)
    attempt = 1 if is_waiting_for_children else thread.retries.wakes + 1
    context.note(
        events.SessionWoken(
            owner=context.writer.lease.owner, epoch=context.writer.lease.epoch, attempt=attempt
        )
    )
    # Each attempt without progress is counted in the log, so a session that kills its worker is
    # not woken for ever.
    context.note(*recovery_events(thread, partial(in_doubt_policy, context.toolbox)))
    if attempt > WAKES_WITHOUT_PROGRESS:
        return Ended("recovery_exhausted", f"woken {attempt - 1} times without progress")
    return None


def _is_answerable(context: ThreadContext) -> bool:
    """Whether an idle thread was interrupted, or a call that it waits for was answered."""
    thread = context.thread
    return thread.interrupted or any(
        call.is_answered or context.siblings.is_answerable(call)
        for call in thread.unsettled_calls()
    )


async def _has_new_input(context: ThreadContext, ended: Ended) -> bool:
    """Whether something arrived in the meantime that lets the run continue."""
    thread = context.thread
    if ended.reason == "completed":
        return await _has_more_input(context)
    if ended.reason == "requires_action":
        await receive_during_run(context)
        calls = [thread.round[item] for item in ended.waiting_for if item in thread.round]
        return (
            thread.interrupted
            or any(call.settled or call.is_answered for call in calls)
            or any(map(context.siblings.is_answerable, thread.unsettled_calls()))
        )
    return False


async def _has_more_input(context: ThreadContext) -> bool:
    """Whether a thread that is done gets more input. It waits for its running children first."""
    thread = context.thread
    stopped = await receive_during_run(context)
    while stopped is None and thread.is_answered:
        await context.event_sink.commit()
        if not await context.siblings.wait_for_children(thread.id):
            return False
        stopped = await receive_during_run(context)
        if thread.interrupted:
            return True
    return stopped is None


async def _next_step(context: ThreadContext) -> Step | None:
    thread = context.thread
    # The order is the invariant: open calls are settled before anything else, so every request is
    # well formed and compaction meets no open call; only an answered thread may end.
    if thread.interrupted:
        return _interrupt(context)
    if thread.unsettled_calls():
        return await run_round(context)
    if thread.pending_compaction is not None:
        return await compact_on_request(context, thread.pending_compaction)
    if thread.repetition.due == "stop":
        return _end_loop(context)
    if thread.repetition.due == "nudge":
        return Continue("next_turn", NUDGE)
    if thread.is_answered:
        return Ended("handed_off") if thread.is_handed_off else await _stop(context)
    return await take_turn(context)


def _end_loop(context: ThreadContext) -> Ended:
    why = "the agent keeps repeating the same steps with the same results, after a warning"
    error = events.ErrorDetail(
        type=LOOP_ERROR,
        message=f"{why}; a new message starts a new turn",
        retry_status=events.RetryStatus(type="exhausted"),
    )
    context.note(events.SessionFailed(error=error))
    return Ended("loop_detected", why)


def _interrupt(context: ThreadContext) -> Step:
    """Give every open call a result, so that the next request is well formed."""
    context.interrupt_requested = anyio.Event()  # the interrupt is handled
    open_calls = context.thread.unsettled_calls()
    for call in open_calls:
        context.siblings.abandon(call)
        settle(context, call, ToolResult.text(INTERRUPTED_TEXT, ok=False, error="cancelled"))
    close_interrupted(context)
    if context.thread.redirected:
        return Continue("inbox_message")
    return Ended("interrupted_tools" if open_calls else "interrupted_streaming")


async def _stop(context: ThreadContext) -> Step:
    """The model has finished: ask the hooks, the authorizer, and the grader of its outcome."""
    step = await _stop_feedback(context) or await evaluate_outcome(context)
    if step == "interrupted":
        await receive_during_run(context)
        return _interrupt(context)
    if step is not None:
        return step
    own_tier = context.tiers[0]
    if prompt := continuation(own_tier.spend_account.spending, own_tier.limits):
        return Continue("budget_continuation", prompt)
    return Ended("completed")


async def _stop_feedback(context: ThreadContext) -> Continue | Ended | None:
    feedback_count = context.thread.retries.stop_feedback
    if feedback_count >= FEEDBACK_IN_A_ROW:
        return None
    last_message = context.thread.transcript.last_words()
    hook_result = await context.run_hooks(
        hook_events.stopping(
            is_again=feedback_count > 0, last_message=last_message, agent=context.subagent
        ),
        is_context=False,
    )
    if hook_result.stop is not None:
        return Ended("stop_hook_prevented", hook_result.stop)
    if hook_result.blocked:
        return Continue("stop_hook_feedback", hook_result.reason or "A hook asks you to continue.")
    toolbox = context.toolbox
    objection = toolbox.stop_objection and toolbox.stop_objection(context.thread)
    if objection:
        return Continue("stop_hook_feedback", objection)
    verdict = await toolbox.authorizer.before_stop(context.thread)
    context.note_pending_facts()
    return verdict
