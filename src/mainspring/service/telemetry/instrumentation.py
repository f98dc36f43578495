"""Counts runs by their events, jobs, and numbers that only the store has."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, get_args

import anyio
from anyio import Event as Signal

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.envelope import Event
from mainspring.core.errors import MainspringError, StoreFailed
from mainspring.core.events import (
    ApprovalAnswered,
    ApprovalRequested,
    SessionWoken,
    StatusRunning,
    ToolCallAuthorized,
    UserCustomToolResult,
    UserMessage,
    UserToolConfirmation,
    UserToolResult,
)
from mainspring.harness.stop_reasons import EndReason
from mainspring.service.jobs.dispatcher import Backlog, Dispatcher, FailureHandler, Job, JobHandler
from mainspring.service.telemetry.metrics import OTHER_LABEL, Metrics
from mainspring.service.telemetry.run_observers import RunSubject
from mainspring.service.telemetry.session_spans import (
    ModelRequestSpan,
    RunSpan,
    ToolCallSpan,
    TraceSpan,
)

if TYPE_CHECKING:
    from prometheus_client import Gauge

CountRows: TypeAlias = Callable[[], Awaitable[int]]
_END_REASONS = frozenset((*get_args(EndReason), "parked", "terminated"))
_COUNT_SECONDS = 2.0  # for the store to count; then the gauges are NaN
_MAX_WAITING = 10_000  # messages without a run yet; then all are forgotten


class RunMetrics:
    """A `RunListener`. Its only state is when the oldest unprocessed message was sent."""

    def __init__(
        self, metrics: Metrics, *, tools: Collection[str] = (), clock: Clock = clocks.now
    ) -> None:
        """`tools`: names that are used as labels; other tools are counted only by their kind,
        because tenants and models choose their names."""
        self._metrics = metrics
        self._tools = frozenset(tools)
        self._waiting: dict[str, datetime] = {}
        self._answering: dict[str, datetime] = {}
        """By running session: when the event that the model is to answer was sent."""
        self._clock = clock

    def on_event(self, subject: RunSubject, event: Event) -> None:
        metrics, thread = self._metrics, event.thread_id
        match event.payload:
            case StatusRunning():
                sent_at = self._waiting.pop(thread, None)
                if sent_at is not None:
                    metrics.wake_seconds.observe(max(0.0, (event.time - sent_at).total_seconds()))
                    self._answering[subject.session_id] = sent_at
            case SessionWoken():
                self._waiting.pop(thread, None)
                metrics.takeovers.inc()
            case ToolCallAuthorized(decision="ask") | ApprovalRequested():
                metrics.approvals_asked.inc()
            case UserToolConfirmation(result=result) | ApprovalAnswered(decision=result):
                metrics.approvals_answered.labels(result).inc()
                self._note_sent(event)
            case UserMessage() | UserCustomToolResult() | UserToolResult():
                self._note_sent(event)
            case _:
                pass

    def on_first_token(self, subject: RunSubject) -> None:
        if (sent_at := self._answering.pop(subject.session_id, None)) is not None:
            seconds = (self._clock() - sent_at).total_seconds()
            self._metrics.first_token_seconds.observe(max(0.0, seconds))

    def finished(self, subject: RunSubject, span: TraceSpan) -> None:
        match span.details:
            case RunSpan() as run_span:
                self._answering.pop(subject.session_id, None)
                self._run(span, run_span)
            case ModelRequestSpan() as run_span:
                self._chat(span, run_span)
            case ToolCallSpan() as run_span:
                self._call(span, run_span)

    def _note_sent(self, event: Event) -> None:
        if len(self._waiting) >= _MAX_WAITING:  # from runs that died before they began
            self._waiting.clear()
        if (sent_at := created_at_of_id(event.id)) is not None:
            self._waiting.setdefault(event.thread_id, sent_at)

    def _run(self, span: TraceSpan, run: RunSpan) -> None:
        self._waiting.pop(span.thread_id, None)  # messages during the run did not wake it
        reason = run.reason if run.reason in _END_REASONS else OTHER_LABEL
        self._metrics.runs.labels(reason).inc()
        self._metrics.run_seconds.observe(span.seconds)

    def _chat(self, span: TraceSpan, request: ModelRequestSpan) -> None:
        metrics, model = self._metrics, self._metrics.model_label(request.model)
        metrics.model_requests.labels(model, "failed" if request.is_error else "ok").inc()
        metrics.model_request_seconds.labels(model).observe(span.seconds)
        for kind, count in (
            ("input", request.usage.input_tokens),
            ("cache_write", request.usage.cache_creation_input_tokens),
            ("cache_read", request.usage.cache_read_input_tokens),
            ("output", request.usage.output_tokens),
        ):
            metrics.model_tokens.labels(model, kind).inc(count)
        metrics.model_cost.labels(model).inc(float(request.cost_usd or 0))

    def _call(self, span: TraceSpan, call: ToolCallSpan) -> None:
        is_known = call.kind == "function" and call.tool in self._tools
        tool = call.tool if is_known else f"({call.kind})"
        self._metrics.tool_calls.labels(tool, call.outcome).inc()
        if call.attempts:
            self._metrics.tool_call_seconds.labels(tool).observe(span.seconds)


def created_at_of_id(id_: str) -> datetime | None:
    """When an id was created; its digits begin with the milliseconds since 1970."""
    digits = id_.partition("_")[2]
    if len(digits) != 32:
        return None
    try:
        return datetime.fromtimestamp(int(digits[:12], 16) / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # not in the format of `core.ids`
        return None


@dataclass(frozen=True, slots=True)
class MeteredDispatcher:
    """A `Dispatcher` that counts the jobs of another one."""

    dispatcher: Dispatcher
    metrics: Metrics

    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        await self.dispatcher.put(job, at=at)
        self.metrics.jobs_queued.labels(job.task).inc()

    async def remind(self, jobs: Sequence[Job]) -> None:
        await self.dispatcher.remind(jobs)

    async def cancel(self, task: str, key: str) -> None:
        await self.dispatcher.cancel(task, key)

    async def backlog(self) -> Backlog:
        return await self.dispatcher.backlog()

    async def work(
        self,
        handle: JobHandler,
        *,
        concurrency: int,
        closing: Signal,
        on_failure: FailureHandler | None = None,
    ) -> None:
        async def counted(job: Job) -> None:
            start = time.monotonic()
            with self.metrics.jobs_running.labels(job.task).track_inprogress():
                outcome = "cut_off"
                try:
                    await handle(job)
                    outcome = "done"
                except Exception as error:
                    outcome = self._failure(error)
                    raise
                finally:
                    self.metrics.jobs_done.labels(job.task, outcome).inc()
                    self.metrics.job_seconds.labels(job.task).observe(time.monotonic() - start)

        async def given_up(job: Job, error: Exception) -> None:
            self.metrics.jobs_done.labels(job.task, "given_up").inc()
            if on_failure is not None:
                await on_failure(job, error)

        await self.dispatcher.work(
            counted, concurrency=concurrency, closing=closing, on_failure=given_up
        )

    def _failure(self, error: Exception) -> str:
        if isinstance(error, StoreFailed):
            self.metrics.store_errors.labels("job").inc()
        return "failed"


class StoreGauges:
    """Gauges of the store, which is queried when they are read."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        sessions_parked: CountRows | None = None,
        approvals_waiting: CountRows | None = None,
        deliveries_dead: CountRows | None = None,
        backlog: Callable[[], Awaitable[Backlog]] | None = None,
    ) -> None:
        self._metrics = metrics
        current: tuple[tuple[Gauge, CountRows | None], ...] = (
            (metrics.sessions_parked, sessions_parked),
            (metrics.approvals_waiting, approvals_waiting),
            (metrics.deliveries_dead, deliveries_dead),
        )
        self._backlog = backlog
        self._counts = [(gauge, count) for gauge, count in current if count is not None]
        for gauge in (*self._job_gauges, *(gauge for gauge, _ in current)):
            gauge.set(float("nan"))  # unknown is not zero

    @property
    def _job_gauges(self) -> tuple[Gauge, Gauge]:
        return self._metrics.jobs_waiting, self._metrics.oldest_job_seconds

    async def __call__(self) -> None:
        """Query for two seconds at most; a failed query gives NaN."""
        async with anyio.create_task_group() as group:
            for gauge, count in self._counts:
                group.start_soon(self._update, (gauge,), partial(_counted, count))
            if self._backlog is not None:
                group.start_soon(self._update, self._job_gauges, partial(_measured, self._backlog))

    async def _update(
        self, gauges: Sequence[Gauge], query: Callable[[], Awaitable[Sequence[float]]]
    ) -> None:
        values: Sequence[float] = [float("nan")] * len(gauges)
        try:
            with anyio.fail_after(_COUNT_SECONDS):
                values = await query()
        except (MainspringError, TimeoutError):
            self._metrics.store_errors.labels("metrics").inc()
        for gauge, value in zip(gauges, values, strict=True):
            gauge.set(value)


async def _counted(count: CountRows) -> Sequence[float]:
    return [await count()]


async def _measured(backlog: Callable[[], Awaitable[Backlog]]) -> Sequence[float]:
    measured = await backlog()
    return [measured.jobs, measured.oldest_seconds]
