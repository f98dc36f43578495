"""The listeners of this process's runs: metrics, and OpenTelemetry if it is configured."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Protocol, cast

import anyio
from anyio import to_thread

from mainspring.core.errors import InvalidInput
from mainspring.log.session_log import SessionLog
from mainspring.service.resources.agent_tools import BUILTINS
from mainspring.service.telemetry.instrumentation import RunMetrics
from mainspring.service.telemetry.metrics import Metrics
from mainspring.service.telemetry.run_observers import RunListener, RunObservers

TOOL_LABELS = frozenset(
    (
        *BUILTINS,
        "artifact",
        "ask_user",
        "cron_create",
        "cron_delete",
        "cron_list",
        "exit_plan_mode",
        "history_read",
        "history_search",
        "python",
        "service_output",
        "service_start",
        "service_stop",
        "skill_search",
        "task_create",
        "task_get",
        "task_list",
        "task_update",
        "think",
        "tool_search",
    )
)
"""Tools with names that we define, which are safe as labels."""
CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURE_VALUES = ("true", "1", "span_only", "span_and_event")
_ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_FLUSH_SECONDS = 5.0
"""The time for sending the remaining data."""


class Exporter(RunListener, Protocol):
    def close(self) -> None:
        """Send the remaining data; may take a while."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OtelSettings:
    """Settings from the standard variables."""

    traces: str | None
    metrics: str | None
    """The URLs to export to; `None`: do not export."""
    captures: bool
    is_named: bool
    """Whether OTEL_SERVICE_NAME names this service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    metrics: Metrics
    run_observers: RunObservers


@asynccontextmanager
async def open_telemetry(
    log: SessionLog, metrics: Metrics, *, environment: Mapping[str, str], version: str
) -> AsyncGenerator[Telemetry, None]:
    """Raises: InvalidInput: OpenTelemetry is configured but not installed."""
    otel = read_otel_settings(environment)
    exporters = _exporters(otel, version)
    observers = RunObservers(
        log, (RunMetrics(metrics, tools=TOOL_LABELS), *exporters), captures=otel.captures
    )
    metrics.follow(metrics.sessions_running, lambda: observers.running)
    try:
        yield Telemetry(metrics=metrics, run_observers=observers)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_FLUSH_SECONDS):
            for exporter in exporters:
                await to_thread.run_sync(exporter.close, abandon_on_cancel=True)


def read_otel_settings(environment: Mapping[str, str]) -> OtelSettings:
    """Raises: InvalidInput: an unsupported protocol."""
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    otel = OtelSettings(
        traces=None if is_off else _endpoint(environment, "traces"),
        metrics=None if is_off else _endpoint(environment, "metrics"),
        captures=environment.get(CAPTURE_VARIABLE, "").lower() in _CAPTURE_VALUES,
        is_named=bool(environment.get("OTEL_SERVICE_NAME")),
    )
    protocol = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if (otel.traces or otel.metrics) and protocol != "http/protobuf":
        raise InvalidInput(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: only http/protobuf is supported, usually on"
            " port 4318"
        )
    return otel


def _endpoint(environment: Mapping[str, str], signal: str) -> str | None:
    if environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").lower() == "none":
        return None
    if own := environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"):
        return own
    shared = environment.get(_ENDPOINT_VARIABLE)
    return f"{shared.rstrip('/')}/v1/{signal}" if shared else None


def _exporters(otel: OtelSettings, version: str) -> tuple[Exporter, ...]:
    if otel.traces is None and otel.metrics is None:
        return ()
    tracing = _import_otel_export()
    resource = tracing.resource_of(version, service_name=None if otel.is_named else "mainspring")
    exporters: list[Exporter] = []
    if otel.traces is not None:
        exporters.append(cast("Exporter", tracing.tracing_over_http(otel.traces, resource)))
    if otel.metrics is not None:
        exporters.append(cast("Exporter", tracing.metering_over_http(otel.metrics, resource)))
    return tuple(exporters)


def _import_otel_export() -> ModuleType:
    try:  # imported by name: optional, and slow to import
        return import_module("mainspring.service.telemetry.otel_export")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        problem = InvalidInput(f"{_ENDPOINT_VARIABLE} is set, but OpenTelemetry is not installed")
        problem.add_note("pip install 'mainspring[otel]'")
        raise problem from error
