"""Spans and metrics for OpenTelemetry, by its GenAI conventions.

Imported only if they are exported: its packages are an optional dependency.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode
from opentelemetry.util.types import AttributeValue

from mainspring.core.clock import to_micros
from mainspring.core.envelope import Event
from mainspring.service.telemetry.run_observers import RunSubject
from mainspring.service.telemetry.session_spans import (
    ModelRequestSpan,
    RunSpan,
    ToolCallSpan,
    TraceSpan,
)

_SCOPE = "mainspring"
_PROVIDERS = {"gemini": "gcp.gemini"}
"""Providers with another name in the conventions."""
_FAILURES = frozenset(("model_error", "recovery_exhausted", "prompt_too_long", "parked"))
_TOKENS = tuple(4**power for power in range(14))
_SECONDS = tuple(0.01 * 2**power for power in range(14))

Attributes = dict[str, AttributeValue]


def resource_of(version: str, *, service_name: str | None) -> Resource:
    """The resource of all spans and metrics. Without a `service_name`, OTEL_SERVICE_NAME
    applies."""
    name = {} if service_name is None else {"service.name": service_name}
    return Resource.create({**name, "service.version": version})


class OtelTraces:
    """A `RunListener`. The ids of a span derive from its events, so that a worker that takes over
    a session continues the same trace."""

    def __init__(self, processor: SpanProcessor, resource: Resource) -> None:
        self._processor = processor
        self._resource = resource
        self._scope = InstrumentationScope(_SCOPE)

    def on_event(self, subject: RunSubject, event: Event) -> None:
        pass

    def on_first_token(self, subject: RunSubject) -> None:
        pass

    def finished(self, subject: RunSubject, span: TraceSpan) -> None:
        self._processor.on_end(self._readable(subject, span))

    def close(self) -> None:
        self._processor.shutdown()

    def _readable(self, subject: RunSubject, span: TraceSpan) -> ReadableSpan:
        trace = trace_id(subject.session_id)
        error = _error_of(span)
        attributes = {**_identity_attributes(subject, span), **_attributes(span)}
        if error is not None:
            attributes["error.type"] = error
        return ReadableSpan(
            name=_name(span),
            context=_context(trace, span.id),
            parent=None if span.parent is None else _context(trace, span.parent),
            resource=self._resource,
            attributes=attributes,
            kind=SpanKind.CLIENT
            if isinstance(span.details, ModelRequestSpan)
            else SpanKind.INTERNAL,
            status=Status(StatusCode.UNSET if error is None else StatusCode.ERROR, error),
            start_time=_nanoseconds(span.begun),
            end_time=_nanoseconds(span.ended),
            instrumentation_scope=self._scope,
        )


class OtelMetrics:
    """A `RunListener`: the metrics that the conventions require of model clients."""

    def __init__(self, readers: Sequence[MetricReader], resource: Resource) -> None:
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(_SCOPE)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def on_event(self, subject: RunSubject, event: Event) -> None:
        pass

    def on_first_token(self, subject: RunSubject) -> None:
        pass

    def finished(self, subject: RunSubject, span: TraceSpan) -> None:
        if not isinstance(span.details, ModelRequestSpan):
            return
        usage, common = span.details.usage, _model_attributes(span.details)
        error = _error_of(span)
        self._seconds.record(
            span.seconds, common if error is None else {**common, "error.type": error}
        )
        self._tokens.record(_input_tokens(span.details), {**common, "gen_ai.token.type": "input"})
        self._tokens.record(usage.output_tokens, {**common, "gen_ai.token.type": "output"})

    def close(self) -> None:
        self._provider.shutdown()


def tracing_over_http(endpoint: str, resource: Resource) -> OtelTraces:
    """Exports over HTTP; the standard variables set headers, certificates, time limits and
    batches."""
    return OtelTraces(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)), resource)


def metering_over_http(endpoint: str, resource: Resource) -> OtelMetrics:
    exporter = OTLPMetricExporter(endpoint=endpoint)
    return OtelMetrics([PeriodicExportingMetricReader(exporter)], resource)


def trace_id(session_id: str) -> int:
    return int.from_bytes(hashlib.sha256(session_id.encode()).digest()[:16])


def span_id(event_id: str) -> int:
    return int.from_bytes(hashlib.sha256(event_id.encode()).digest()[:8])


def _context(trace: int, event_id: str) -> SpanContext:
    return SpanContext(trace, span_id(event_id), False, TraceFlags(TraceFlags.SAMPLED))


def _name(span: TraceSpan) -> str:
    match span.details:
        case RunSpan():
            return f"invoke_agent {span.agent_name}"
        case ModelRequestSpan(model=model):
            return f"chat {_split_model(model)[1]}"
        case ToolCallSpan(tool=tool):
            return f"execute_tool {tool}"


def _error_of(span: TraceSpan) -> str | None:
    match span.details:
        case RunSpan(reason=reason):
            return reason if reason in _FAILURES else None
        case ModelRequestSpan(is_error=is_error, stop_reason=stop_reason):
            return (stop_reason or "_OTHER") if is_error else None
        case ToolCallSpan(outcome=outcome):
            return None if outcome == "ok" else outcome


def _identity_attributes(subject: RunSubject, span: TraceSpan) -> Attributes:
    who: Attributes = {
        "gen_ai.conversation.id": subject.session_id,
        "gen_ai.agent.name": span.agent_name,
        "mainspring.tenant": subject.tenant,
        "mainspring.thread.id": span.thread_id,
    }
    if span.agent_name == subject.agent_name:  # the id of a subagent is not known here
        who["gen_ai.agent.id"] = subject.agent_id
    return who


def _attributes(span: TraceSpan) -> Attributes:
    match span.details:
        case RunSpan() as run_span:
            attributes: Attributes = {
                "gen_ai.operation.name": "invoke_agent",
                "mainspring.run.reason": run_span.reason,
            }
            return attributes | _message("gen_ai.input.messages", "user", run_span.input_text)
        case ModelRequestSpan() as run_span:
            return _chat_attributes(run_span)
        case ToolCallSpan() as run_span:
            return _call_attributes(span, run_span)


def _chat_attributes(request: ModelRequestSpan) -> Attributes:
    usage = request.usage
    attributes = _model_attributes(request) | {
        "gen_ai.usage.input_tokens": _input_tokens(request),
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
    }
    if request.stop_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (request.stop_reason,)
    if request.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = request.max_tokens
    if request.cost_usd is not None:
        attributes["mainspring.cost_usd"] = request.cost_usd
    if request.purpose is not None:
        attributes["mainspring.purpose"] = request.purpose
    return attributes | _message("gen_ai.output.messages", "assistant", request.said)


def _call_attributes(span: TraceSpan, call: ToolCallSpan) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.call.id": span.id,
        "gen_ai.tool.type": "function" if call.kind != "mcp" else "extension",
        "mainspring.tool.outcome": call.outcome,
        "mainspring.tool.attempts": call.attempts,
    }
    if call.arguments is not None:
        attributes["gen_ai.tool.call.arguments"] = call.arguments
    if call.result is not None:
        attributes["gen_ai.tool.call.result"] = call.result
    return attributes


def _model_attributes(request: ModelRequestSpan) -> Attributes:
    provider, model = _split_model(request.model)
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": model,
    }
    if request.answered_by is not None:
        attributes["gen_ai.response.model"] = _split_model(request.answered_by)[1]
    return attributes


def _split_model(model: str) -> tuple[str, str]:
    provider, colon, name = model.partition(":")
    return (provider, name) if colon else (_SCOPE, model)


def _input_tokens(request: ModelRequestSpan) -> int:
    """Input tokens, including those read from and written to the cache, as the conventions
    require."""
    usage = request.usage
    cached = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    return usage.input_tokens + cached


def _message(name: str, role: str, text: str | None) -> Attributes:
    if not text:
        return {}
    return {name: json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])}


def _nanoseconds(moment: datetime) -> int:
    return to_micros(moment) * 1000
