"""What a thread does while no model answers: it announces each wait, ends a wait that its limits do
not allow, and in the service leaves the rest of the outage to a later run."""

from __future__ import annotations

import anyio
from msgspec import Struct

from mainspring.core import events
from mainspring.core.errors import ProviderFailed, ProviderFailure
from mainspring.core.model import RetryScheduled
from mainspring.harness.stop_reasons import Ended
from mainspring.harness.thread_context import ThreadContext

_ATTEMPTS_IN_RUN = 3
"""After so many attempts a run that can be continued later ends, and makes room for others."""
_MAX_RESCHEDULED = 100
"""How often one request is left to a later run: with waits of 15 minutes, about a day."""
_ERROR_TYPES: dict[ProviderFailure, str] = {
    "overloaded": "model_overloaded_error",
    "rate_limited": "model_rate_limited_error",
    "billing": "billing_error",
}


class OutageWaits(Struct):
    """The waits of one model request."""

    context: ThreadContext
    seconds_before: tuple[float, ...]
    """The running time before the request, by tier."""
    has_announced: bool = False
    ended: Ended | None = None
    """Why the thread does not wait any longer, if that is not the failure itself."""

    @classmethod
    def begin(cls, context: ThreadContext) -> OutageWaits:
        return cls(context, tuple(tier.spend_account.spending.seconds for tier in context.tiers))

    async def accept(self, wait: RetryScheduled) -> ProviderFailed | None:
        """Announce a wait, once in the log; or return the failure, if the thread must not wait."""
        self.ended = self._ended_by_limit(wait)
        failure = ProviderFailed(wait.model, wait.kind, wait.reason)
        is_left = can_reschedule(self.context, failure) and wait.attempt > _ATTEMPTS_IN_RUN
        if self.ended is not None or is_left:
            return failure
        if not self.has_announced:
            self.has_announced = True
            with anyio.CancelScope(shield=True):  # a commit must not be interrupted
                self.context.note(events.SessionFailed(error=_announcement(wait)))
                await self.context.event_sink.commit()
        self.context.emit(wait)
        return None

    def _ended_by_limit(self, wait: RetryScheduled) -> Ended | None:
        for tier, before in zip(self.context.tiers, self.seconds_before, strict=True):
            limit, used = tier.limits.max_seconds, before + wait.waited_seconds
            if limit is not None and used + wait.seconds > limit:
                detail = (
                    f"{used:.0f} of {limit:.0f} seconds used, and {wait.model} would be asked"
                    f" again in {wait.seconds:.0f} s: {wait.reason}"
                )
                return Ended("budget_reached", detail)
        return None


def can_reschedule(context: ThreadContext, failure: ProviderFailed) -> bool:
    """Whether a later run may continue the thread. A subagent's thread ends with its own run."""
    is_conversation = context.event_sink.thread_tree.active.id == context.thread.id
    return (
        failure.is_outage
        and context.toolbox.reschedule is not None
        and is_conversation
        and context.thread.retries.outages < _MAX_RESCHEDULED
    )


async def note_rescheduled(context: ThreadContext) -> None:
    """The job comes before the event: a session that is shown as rescheduled runs again."""
    assert context.toolbox.reschedule is not None
    await context.toolbox.reschedule(context.thread.retries.outages)
    context.note(events.StatusRescheduled())
    await context.event_sink.commit()


def error_detail(failed: ProviderFailed, *, is_retried: bool = False) -> events.ErrorDetail:
    status = "retrying" if is_retried else "exhausted" if failed.retryable else "terminal"
    return events.ErrorDetail(
        type=_ERROR_TYPES.get(failed.kind, "model_request_failed_error"),
        message=str(failed),
        retry_status=events.RetryStatus(type=status),
        failure=failed.kind,
    )


def _announcement(wait: RetryScheduled) -> events.ErrorDetail:
    minutes = wait.limit_seconds / 60
    limit = f"{minutes:.0f} min" if minutes >= 2 else f"{wait.limit_seconds:.0f} s"
    what = f"{wait.reason}; trying again, {wait.attempts} times in up to {limit}"
    return error_detail(ProviderFailed(wait.model, wait.kind, what), is_retried=True)
