import re
from collections.abc import Iterator, Mapping
from math import isnan
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio import Event as Signal
from prometheus_client.metrics import MetricWrapperBase
from tests.service.logs import MAIN, SESSION, logged

from mainspring import Agent, Tool, open_runtime, tool
from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.errors import StoreUnavailable
from mainspring.core.events import KnownPayload, StopReason, Usage
from mainspring.core.model import TextDelta
from mainspring.core.ports import PostResult
from mainspring.log.task_groups import run_in_background
from mainspring.service.jobs.dispatcher import Backlog, Job
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.telemetry.instrumentation import (
    MeteredDispatcher,
    RunMetrics,
    StoreGauges,
    created_at_of_id,
)
from mainspring.service.telemetry.metrics import OTHER_LABEL, BoundedLabels, Metrics
from mainspring.service.telemetry.run_observers import RunObserver, RunObservers, RunSubject
from mainspring.service.telemetry.session_spans import SpanFold
from mainspring.service.webhooks.webhook_deliveries import MeteredPoster
from mainspring.testing import Scripted, calls, fails, says

ROOT = Path(__file__).parents[2]
SUBJECT = RunSubject(session_id=SESSION, tenant="acme", agent_id="agent_1", agent_name="clerk")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="1.2.3")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"mainspring_{name}", labels)


def observer(metrics: Metrics, *tools: str) -> RunObserver:
    return RunObserver(SUBJECT, SpanFold(), [RunMetrics(metrics, tools=tools)])


def feed_events(watcher: RunObserver, *payloads: KnownPayload, ids: Mapping[int, str] = {}) -> None:
    for seq, payload in enumerate(payloads, 1):
        watcher.on_event(logged(seq, payload, MAIN, ids.get(seq)))


def test_exactly_the_documented_metrics_exist(metrics: Metrics):
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(mainspring_\w+)` \| (\w+) \|([^|]*)\|", text, re.MULTILINE)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == dict(registered_metrics(metrics))


def registered_metrics(metrics: Metrics) -> Iterator[tuple[str, tuple[str, set[str]]]]:
    for instrument in vars(metrics).values():
        if isinstance(instrument, MetricWrapperBase):
            [described] = instrument.describe()
            suffix = "_total" if described.type == "counter" else ""
            labels = set(cast("tuple[str, ...]", instrument._labelnames))  # pyright: ignore[reportUnknownMemberType]
            yield described.name + suffix, (described.type, labels)
    yield "mainspring_info", ("gauge", {"version"})


def test_a_run_is_counted_from_its_events(metrics: Metrics):
    feed_events(
        observer(metrics, "bash"),
        events.StatusRunning(),
        events.ModelRequestStarted(model="anthropic:opus"),
        events.AgentToolUse(name="bash", input={}),
        events.ModelRequestEnded(
            model_request_start_id="e2",
            model_usage=Usage(input_tokens=7, cache_read_input_tokens=100, output_tokens=3),
            cost_usd="0.25",
        ),
        events.ToolCallStarted(tool_use_id="e3", idempotency_key="k"),
        events.AgentToolResult(tool_use_id="e3", is_error=True, error="timed_out"),
        events.StatusIdle(stop_reason=StopReason(type="end_turn"), reason="completed"),
    )
    assert value(metrics, "runs_total", reason="completed") == 1
    assert value(metrics, "run_seconds_sum") == 6
    assert value(metrics, "model_requests_total", model="anthropic:opus", outcome="ok") == 1
    assert value(metrics, "model_tokens_total", model="anthropic:opus", kind="cache_read") == 100
    assert value(metrics, "model_cost_usd_total", model="anthropic:opus") == 0.25
    assert value(metrics, "tool_calls_total", tool="bash", outcome="timed_out") == 1
    assert value(metrics, "tool_call_seconds_sum", tool="bash") == 1


@pytest.mark.parametrize(
    ("use", "label"),
    [
        (events.AgentToolUse(name="made_up_by_the_model", input={}), "(function)"),
        (events.AgentMcpToolUse(mcp_server_name="s", name="mcp__s__t", input={}), "(mcp)"),
        (events.AgentCustomToolUse(name="bash", input={}), "(client)"),
    ],
)
def test_tools_outside_the_built_ins_are_labelled_by_kind(
    metrics: Metrics, use: KnownPayload, label: str
):
    result = {
        "(function)": events.AgentToolResult(tool_use_id="e1"),
        "(mcp)": events.AgentMcpToolResult(mcp_tool_use_id="e1"),
        "(client)": events.UserCustomToolResult(custom_tool_use_id="e1"),
    }[label]
    feed_events(observer(metrics, "bash"), use, result)
    assert value(metrics, "tool_calls_total", tool=label, outcome="ok") == 1


def test_wake_time_is_measured_from_the_oldest_message_to_the_run(metrics: Metrics):
    said = events.UserMessage(content=(TextBlock("hello"),))
    sent = int(logged(1, said, MAIN).time.timestamp() * 1000) - 3000
    first, second = (f"sevt_{sent + late:012x}{'0' * 20}" for late in (0, 500))
    feed_events(observer(metrics), said, said, events.StatusRunning(), ids={1: first, 2: second})
    assert value(metrics, "wake_seconds_count") == 1
    assert value(metrics, "wake_seconds_sum") == 5


def test_a_message_during_a_run_counts_as_no_wake(metrics: Metrics):
    said = events.UserMessage(content=(TextBlock("hello"),))
    idle = events.StatusIdle(stop_reason=StopReason(type="end_turn"))
    old = {2: f"sevt_{0:012x}{'0' * 20}"}
    feed_events(
        observer(metrics), events.StatusRunning(), said, idle, events.StatusRunning(), ids=old
    )
    assert value(metrics, "wake_seconds_count") == 0


def test_takeovers_and_approval_answers_are_counted(metrics: Metrics):
    feed_events(
        observer(metrics),
        events.SessionWoken(owner="w", epoch=2, attempt=1),
        events.ToolCallAuthorized(tool_use_id="e1", decision="ask", gate="rule"),
        events.UserToolConfirmation(tool_use_id="e1", result="deny"),
    )
    assert value(metrics, "takeovers_total") == 1
    assert value(metrics, "approvals_asked_total") == 1
    assert value(metrics, "approvals_answered_total", result="deny") == 1


def test_an_unknown_id_format_has_no_creation_time():
    assert [
        created_at_of_id(id_) for id_ in ("", "e1", "sevt_" + "x" * 32, "sevt_" + "f" * 32)
    ] == [None] * 4


def test_label_values_chosen_by_users_are_bounded():
    label = BoundedLabels(2)
    assert [label(name) for name in ("a", "b", "c", "a", "d")] == [
        "a",
        "b",
        OTHER_LABEL,
        "a",
        OTHER_LABEL,
    ]


def test_a_failing_observer_does_not_stop_a_run(caplog: pytest.LogCaptureFixture):
    class Broken:
        def on_event(self, subject: RunSubject, event: Event) -> None:
            raise ZeroDivisionError

        def on_first_token(self, subject: RunSubject) -> None:
            raise ZeroDivisionError

        def finished(self, subject: RunSubject, span: object) -> None: ...

    watcher = RunObserver(SUBJECT, SpanFold(), [Broken()])
    feed_events(watcher, events.StatusRunning())
    watcher.emit(TextDelta("Good"))
    assert "could not count event e1" in caplog.text
    assert "could not count a first token" in caplog.text


@tool
def greet() -> str:
    """Greet."""
    return "the content of a result"


async def run_observed(folder: Path, metrics: Metrics, script: Scripted, *tools: Tool) -> str:
    """A real run; what the metrics say of it."""
    agent = Agent(name="clerk", tools=list(tools))
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put(agent.model, script)
        observers = RunObservers(runtime.log, [RunMetrics(metrics)])
        metrics.follow(metrics.sessions_running, lambda: observers.running)
        session = await runtime.start(agent, "the content of a message")
        subject = RunSubject(
            session_id=session.id, tenant="acme", agent_id="agent_1", agent_name="clerk"
        )
        async with observers.run(subject) as watcher:
            assert value(metrics, "sessions_running") == 1
            await session.run(watcher.emit, tell=watcher.on_event)
    return metrics.rendered()[0].decode()


async def test_a_run_is_counted_without_its_content(tmp_path: Path, metrics: Metrics):
    script = Scripted(calls("greet"), says("the content of a reply"))
    text = await run_observed(tmp_path, metrics, script, greet)
    assert value(metrics, "runs_total", reason="completed") == 1
    assert value(metrics, "tool_calls_total", tool="(function)", outcome="ok") == 1
    assert value(metrics, "wake_seconds_count") == 1
    assert value(metrics, "first_token_seconds_count") == 1
    assert value(metrics, "sessions_running") == 0
    assert [word for word in ("content", "acme", "agent_1", "sesn_", "greet") if word in text] == []


async def test_a_failed_model_request_is_counted(tmp_path: Path, metrics: Metrics):
    await run_observed(tmp_path, metrics, Scripted(fails("unauthorized")))
    [model] = {s.labels["model"] for i in metrics.model_requests.collect() for s in i.samples}
    assert value(metrics, "model_requests_total", model=model, outcome="failed") == 1
    assert value(metrics, "runs_total", reason="model_error") == 1


def test_metrics_are_rendered_in_the_requested_format(metrics: Metrics):
    text, media_type = metrics.rendered()
    assert media_type.startswith("text/plain")
    assert b'mainspring_info{version="1.2.3"} 1.0' in text
    assert b"process_resident_memory_bytes" in text
    open_metrics, media_type = metrics.rendered("application/openmetrics-text; version=1.0.0")
    assert media_type.startswith("application/openmetrics-text")
    assert open_metrics.endswith(b"# EOF\n")


def test_two_instances_are_independent(metrics: Metrics):
    metrics.takeovers.inc()
    assert value(Metrics(version=""), "takeovers_total") == 0


async def test_jobs_are_counted_by_outcome(tmp_path: Path, metrics: Metrics):
    async with open_runtime(store=str(tmp_path / "log.db")) as runtime:
        inner = EmbeddedDispatcher(runtime.log.store.records, backoff=lambda _: 0.0)
        dispatcher = MeteredDispatcher(inner, metrics)
        over, closing = Signal(), Signal()

        async def do(job: Job) -> None:
            if job.key == "bad":
                raise ValueError
            assert value(metrics, "jobs_running", task="wake") == 1

        async def failed(_job: Job, _error: Exception) -> None:
            over.set()

        async def work() -> None:
            await dispatcher.work(do, concurrency=1, closing=closing, on_failure=failed)

        async with run_in_background(work):
            await dispatcher.put(Job(task="wake", key="good", tenant="acme"))
            await dispatcher.put(Job(task="wake", key="bad", tenant="acme"))
            with anyio.fail_after(60):
                await over.wait()
    assert value(metrics, "jobs_queued_total", task="wake") == 2
    assert value(metrics, "jobs_done_total", task="wake", outcome="done") == 1
    assert value(metrics, "jobs_done_total", task="wake", outcome="failed") == 5
    assert value(metrics, "jobs_done_total", task="wake", outcome="given_up") == 1
    assert value(metrics, "jobs_running", task="wake") == 0


@pytest.mark.parametrize(
    ("posted", "outcome"),
    [
        (PostResult(status=204), "ok"),
        (PostResult(status=500), "failed"),
        (PostResult(error="no answer"), "failed"),
        (PostResult(error="not public", is_refused=True), "refused"),
    ],
)
async def test_webhooks_are_counted_by_outcome(metrics: Metrics, posted: PostResult, outcome: str):
    async def post(url: str, *, headers: Mapping[str, str], body: bytes) -> PostResult:
        return posted

    assert await MeteredPoster(post, metrics)("https://example.com", headers={}, body=b"") == posted
    assert value(metrics, "delivery_attempts_total", outcome=outcome) == 1


async def test_store_gauges_are_read_on_request_and_nan_if_unavailable(metrics: Metrics):
    async def three() -> int:
        return 3

    async def away() -> int:
        raise StoreUnavailable("away")

    await StoreGauges(metrics, sessions_parked=three, approvals_waiting=away)()
    assert value(metrics, "sessions_parked") == 3
    assert isnan(value(metrics, "approvals_waiting") or 0)
    assert value(metrics, "store_errors_total", where="metrics") == 1


async def test_the_gauges_of_jobs_are_those_of_the_dispatcher(metrics: Metrics):
    async def backlog() -> Backlog:
        return Backlog(jobs=3, oldest_seconds=90.5)

    gauges = StoreGauges(metrics, backlog=backlog)
    assert isnan(value(metrics, "jobs_waiting") or 0)
    await gauges()
    assert value(metrics, "jobs_waiting") == 3
    assert value(metrics, "oldest_job_seconds") == 90.5
