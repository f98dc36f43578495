import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.service.logs import MAIN, SESSION, log_of

from mainspring import Agent, InvalidInput, Session, Tool, open_runtime, tool
from mainspring.core import events
from mainspring.core.events import KnownPayload, StopReason, Usage
from mainspring.edges.api.app import http_server
from mainspring.service.telemetry.metrics import Metrics
from mainspring.service.telemetry.otel_export import OtelMetrics, OtelTraces, span_id, trace_id
from mainspring.service.telemetry.run_observers import (
    RunListener,
    RunObserver,
    RunObservers,
    RunSubject,
)
from mainspring.service.telemetry.session_spans import SpanFold
from mainspring.service.telemetry.telemetry_setup import (
    CAPTURE_VARIABLE,
    TOOL_LABELS,
    open_telemetry,
    read_otel_settings,
)
from mainspring.testing import Scripted, calls, says

SUBJECT = RunSubject(session_id=SESSION, tenant="acme", agent_id="agent_1", agent_name="clerk")
IDLE = events.StatusIdle(stop_reason=StopReason(type="end_turn"), reason="completed")
STARTED = events.ModelRequestStarted(model="gemini:flash", max_tokens=100)
ENDED = events.ModelRequestEnded(
    model_request_start_id="e2",
    model_usage=Usage(input_tokens=5, cache_read_input_tokens=90, output_tokens=2),
    model="gemini:flash-8b",
    stop_reason="end_turn",
    cost_usd="0.01",
)


@dataclass
class SpanSink:
    """What was exported, by the names of the spans."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def tracing(self) -> OtelTraces:
        return OtelTraces(SimpleSpanProcessor(self.exporter), Resource.create({}))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


def feed_events(listener: RunListener, *payloads: KnownPayload | tuple[str, KnownPayload]) -> None:
    watcher = RunObserver(SUBJECT, SpanFold(agent_name="clerk"), [listener])
    for event in log_of(*payloads):
        watcher.on_event(event)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def test_a_model_request_is_a_span_with_conventional_attributes():
    sink = SpanSink()
    feed_events(sink.tracing(), events.StatusRunning(), STARTED, ENDED, IDLE)
    chat = sink.spans["chat flash"]
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "flash",
        "gen_ai.request.max_tokens": 100,
        "gen_ai.response.model": "flash-8b",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 95,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 90,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.conversation.id": SESSION,
        "gen_ai.agent.name": "clerk",
        "gen_ai.agent.id": "agent_1",
        "mainspring.cost_usd": "0.01",
        "mainspring.tenant": "acme",
        "mainspring.thread.id": MAIN,
    }
    assert chat.kind.name == "CLIENT"
    assert (chat.end_time or 0) - (chat.start_time or 0) == 1_000_000_000
    assert parent(chat) == id_of(sink.spans["invoke_agent clerk"])


def test_a_failed_call_is_an_error_span_of_its_kind():
    sink = SpanSink()
    use = events.AgentToolUse(name="bash", input={"command": "ls"})
    failed = events.AgentToolResult(tool_use_id="e2", is_error=True, error="timed_out")
    started = events.ToolCallStarted(tool_use_id="e2", idempotency_key="k")
    feed_events(sink.tracing(), events.StatusRunning(), use, started, failed, IDLE)
    span = sink.spans["execute_tool bash"]
    assert span.status.status_code.name == "ERROR"
    found = attributes(span)
    assert found["error.type"] == found["mainspring.tool.outcome"] == "timed_out"
    assert (found["gen_ai.tool.name"], found["gen_ai.tool.call.id"]) == ("bash", "e2")


def test_a_subagents_span_is_below_the_run_that_created_it():
    sink = SpanSink()
    made = events.ThreadCreated(session_thread_id="sthr_2", agent_name="helper")
    running = events.ThreadStatusRunning(session_thread_id="sthr_2", agent_name="helper")
    idle = events.ThreadStatusIdle(
        session_thread_id="sthr_2", agent_name="helper", stop_reason=StopReason(type="end_turn")
    )
    feed_events(sink.tracing(), events.StatusRunning(), made, running, idle, IDLE)
    clerk, helper = sink.spans["invoke_agent clerk"], sink.spans["invoke_agent helper"]
    assert parent(helper) == id_of(clerk)
    assert parent(clerk) is None
    assert "gen_ai.agent.id" not in attributes(helper)
    assert {s.context.trace_id for s in (clerk, helper) if s.context} == {trace_id(SESSION)}


def test_conventional_metrics_are_recorded():
    reader = InMemoryMetricReader()
    metering = OtelMetrics([reader], Resource.create({}))
    feed_events(metering, events.StatusRunning(), STARTED, ENDED, IDLE)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: [
            (dict(point.attributes or {}), point.sum)
            for point in metric.data.data_points
            if isinstance(point, HistogramDataPoint)
        ]
        for resource_metric in data.resource_metrics
        for scope in resource_metric.scope_metrics
        for metric in scope.metrics
    }
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "flash",
        "gen_ai.response.model": "flash-8b",
    }
    assert found == {
        "gen_ai.client.operation.duration": [(model, 1.0)],
        "gen_ai.client.token.usage": [
            ({**model, "gen_ai.token.type": "input"}, 95),
            ({**model, "gen_ai.token.type": "output"}, 2),
        ],
    }
    metering.close()


@tool
def look() -> str:
    """Look."""
    return "secret words"


class ProcessDied(BaseException):
    """As a process does."""


async def run(session: Session, observers: RunObservers) -> None:
    subject = RunSubject(
        session_id=session.id, tenant="acme", agent_id="agent_1", agent_name="clerk"
    )
    async with observers.run(subject) as watcher:
        await session.run(tell=watcher.on_event)


async def test_a_session_taken_over_continues_in_the_same_trace(tmp_path: Path):
    @tool
    def stumble() -> str:
        """Stumble, the first time."""
        if not stumbled:
            stumbled.append(True)
            raise ProcessDied
        return "up again"

    stumbled: list[bool] = []
    first, second = SpanSink(), SpanSink()
    agent = Agent(name="clerk", tools=[look, stumble])
    script = Scripted(calls("look"), calls("stumble"), says("done"))
    async with open_runtime(store=str(tmp_path / "log.db")) as runtime:
        runtime.models.put(agent.model, script)
        session = await runtime.start(agent, "go")
        with pytest.raises(ProcessDied):
            await run(session, RunObservers(runtime.log, [first.tracing()]))
        heir = await runtime.resume(agent, session.id)
        await run(heir, RunObservers(runtime.log, [second.tracing()]))
    assert "invoke_agent clerk" not in first.spans
    whole = second.spans["invoke_agent clerk"]
    for span in (*first.spans.values(), *second.spans.values()):
        assert span.context is not None
        assert span.context.trace_id == trace_id(session.id)
        assert parent(span) == (None if span is whole else id_of(whole))
    assert "execute_tool look" in first.spans
    assert attributes(second.spans["execute_tool stumble"])["mainspring.tool.outcome"] == "in_doubt"
    assert (whole.start_time or 0) <= (first.spans["execute_tool look"].start_time or 0)


def test_trace_and_span_ids_are_derived_from_log_ids():
    assert trace_id("sesn_1") == trace_id("sesn_1") != trace_id("sesn_2")
    assert 0 < trace_id("sesn_1") < 2**128
    assert 0 < span_id("sevt_1") < 2**64


@dataclass
class ReceivedRequests:
    requests: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    came: anyio.Event = field(default_factory=anyio.Event)


@asynccontextmanager
async def collector(received: ReceivedRequests) -> AsyncGenerator[str]:
    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        received.requests.append((request.path, request.content_type, len(body)))
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/{anything:.*}", take)
    async with http_server(app) as url:
        yield url


async def run_with_telemetry(folder: Path, environment: dict[str, str], *tools: Tool) -> None:
    agent = Agent(name="clerk", tools=list(tools))
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put(agent.model, Scripted(calls("look"), says("done")))
        session = await runtime.start(agent, "go")
        async with open_telemetry(
            runtime.log, Metrics(version="1"), environment=environment, version="1"
        ) as watching:
            await run(session, watching.run_observers)


async def test_spans_and_metrics_reach_a_collector_before_the_process_ends(tmp_path: Path):
    received = ReceivedRequests()
    async with collector(received) as url:
        with anyio.fail_after(60):
            await run_with_telemetry(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": url}, look)
    assert {(path, kind) for path, kind, _ in received.requests} == {
        ("/v1/traces", "application/x-protobuf"),
        ("/v1/metrics", "application/x-protobuf"),
    }
    assert all(size > 0 for _, _, size in received.requests)


async def test_an_absent_collector_does_not_delay_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    before = set(threading.enumerate())
    async with collector(ReceivedRequests()) as url:
        pass
    with anyio.fail_after(60):
        await run_with_telemetry(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": url}, look)
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("Otel"):  # it draws random pauses, which hypothesis notices
            thread.join(60)


async def test_nothing_is_sent_unless_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mainspring.service.telemetry.otel_export", None)
    await run_with_telemetry(tmp_path, {}, look)


@pytest.mark.parametrize(
    ("environment", "traces", "metrics"),
    [
        ({}, None, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "/v1/traces", "/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/mine"}, "/mine", None),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"},
            "/v1/traces",
            None,
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, None, None),
    ],
)
def test_the_standard_variables_configure_the_endpoints(
    environment: dict[str, str], traces: str | None, metrics: str | None
):
    otel = read_otel_settings(environment)
    assert otel.traces == (traces and f"http://c:4318{traces}")
    assert otel.metrics == (metrics and f"http://c:4318{metrics}")


def test_an_unsupported_protocol_is_refused():
    with pytest.raises(InvalidInput, match="http/protobuf"):
        read_otel_settings(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        )


@pytest.mark.parametrize(
    ("said", "captures"),
    [("", False), ("false", False), ("EVENT_ONLY", False), ("true", True), ("SPAN_ONLY", True)],
)
def test_content_is_captured_only_on_request(said: str, captures: bool):
    assert read_otel_settings({CAPTURE_VARIABLE: said}).captures is captures


async def content(folder: Path, *, captures: bool) -> str:
    sink = SpanSink()
    agent = Agent(name="clerk", tools=[look])
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put(agent.model, Scripted(calls("look"), says("secret words")))
        session = await runtime.start(agent, "secret words")
        await run(session, RunObservers(runtime.log, [sink.tracing()], captures=captures))
    return "".join(span.to_json() for span in sink.spans.values())


async def test_content_is_exported_only_if_enabled(tmp_path: Path):
    assert "secret" not in await content(tmp_path, captures=False)
    assert (await content(tmp_path, captures=True)).count("secret words") == 3


async def test_every_built_in_tool_is_a_known_label(tmp_path: Path):
    model = Scripted(says("done"))
    agent = Agent(name="clerk", built_ins=["*"])
    async with open_runtime(store=str(tmp_path / "log.db")) as runtime:
        runtime.models.put(agent.model, model)
        session = await runtime.start(agent, "go")
        await session.run()
    assert {item.name for item in model.requests[0].tools} <= TOOL_LABELS
