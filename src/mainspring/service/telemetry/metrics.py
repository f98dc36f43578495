"""Metrics of one process for Prometheus.

No label has unlimited values: no tenant, agent, session or key is a label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import choose_encoder
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

OTHER_LABEL = "other"
_MAX_MODELS = 64  # labels; further ones are "other"
# Seconds of an HTTP request.
_REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# Seconds from a client's event to its run, or to the first token.
_WAKE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
# Seconds of a model's reply or a tool call.
_JOB_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_RUN_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)  # seconds of runs


class Metrics:
    """All instruments of one process, with their own registry."""

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry()
        self.model_label = BoundedLabels(_MAX_MODELS)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        Info("mainspring", "The version of Mainspring.", registry=self.registry).info(
            {"version": version}
        )
        self._make_api()
        self._make_runs()
        self._make_models()
        self._make_tools()
        self._make_jobs()
        self._make_store()

    def _make_api(self) -> None:
        self.requests = self._counter("requests", "Handled requests.", "route", "method", "status")
        self.request_seconds = self._histogram(
            "request_seconds",
            "Response times, without streams.",
            _REQUEST_BUCKETS,
            "route",
            "method",
        )
        self.streams_open = self._gauge("streams_open", "Open event streams.")
        self.audit_failures = self._counter(
            "audit_failures", "Audit entries that could not be written."
        )

    def _make_runs(self) -> None:
        self.sessions_running = self._gauge(
            "sessions_running", "Sessions that this process is running."
        )
        self.wake_seconds = self._histogram(
            "wake_seconds", "Time from a client's event to the run that it starts.", _WAKE_BUCKETS
        )
        self.first_token_seconds = self._histogram(
            "first_token_seconds",
            "Time from a client's event to the first token of the model's reply.",
            _WAKE_BUCKETS,
        )
        self.runs = self._counter("runs", "Ended runs, by reason.", "reason")
        self.run_seconds = self._histogram("run_seconds", "Duration of runs.", _RUN_BUCKETS)
        self.takeovers = self._counter(
            "takeovers", "Runs that another worker started and did not end."
        )
        self.approvals_asked = self._counter(
            "approvals_asked", "Tool calls that need a person's approval."
        )
        self.approvals_answered = self._counter(
            "approvals_answered", "Answers of people to approvals.", "result"
        )

    def _make_models(self) -> None:
        self.model_requests = self._counter(
            "model_requests", "Requests to models.", "model", "outcome"
        )
        self.model_request_seconds = self._histogram(
            "model_request_seconds",
            "Time until models completed their replies.",
            _JOB_BUCKETS,
            "model",
        )
        self.model_tokens = self._counter("model_tokens", "Tokens.", "model", "kind")
        self.model_cost = self._counter(
            "model_cost_usd", "Cost of model requests in US dollars, by list price.", "model"
        )

    def _make_tools(self) -> None:
        self.tool_calls = self._counter("tool_calls", "Tool calls.", "tool", "outcome")
        self.tool_call_seconds = self._histogram(
            "tool_call_seconds", "Duration of tool calls that were started.", _JOB_BUCKETS, "tool"
        )

    def _make_jobs(self) -> None:
        self.jobs_queued = self._counter("jobs_queued", "Jobs that were enqueued.", "task")
        self.jobs_running = self._gauge("jobs_running", "Running jobs.", "task")
        self.jobs_done = self._counter("jobs_done", "Finished jobs, by outcome.", "task", "outcome")
        self.job_seconds = self._histogram("job_seconds", "Duration of jobs.", _RUN_BUCKETS, "task")
        self.delivery_attempts = self._counter(
            "delivery_attempts", "Webhook delivery attempts, by outcome.", "outcome"
        )

    def _make_store(self) -> None:
        self.store_errors = self._counter(
            "store_errors", "Store failures, by the part that saw them.", "where"
        )
        self.sessions_parked = self._gauge(
            "sessions_parked", "Sessions in the store that are parked after 5 failed runs."
        )
        self.approvals_waiting = self._gauge(
            "approvals_waiting", "Tool calls in the store that wait for a person."
        )
        self.deliveries_dead = self._gauge(
            "deliveries_dead", "Undelivered webhook deliveries in the store."
        )
        self.jobs_waiting = self._gauge("jobs_waiting", "Due jobs in the store.")
        self.oldest_job_seconds = self._gauge(
            "oldest_job_seconds", "How long the oldest due job in the store has waited."
        )

    def follow(self, gauge: Gauge, count: Callable[[], float]) -> None:
        """Call `count` each time the gauge is read."""
        gauge.set_function(count)

    def rendered(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics, and their media type by `accept`."""
        encode, media_type = choose_encoder(accept)
        return encode(self.registry), media_type

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"mainspring_{name}", description, labels, registry=self.registry)

    def _gauge(self, name: str, description: str, *labels: str) -> Gauge:
        return Gauge(f"mainspring_{name}", description, labels, registry=self.registry)

    def _histogram(
        self, name: str, description: str, buckets: Sequence[float], *labels: str
    ) -> Histogram:
        return Histogram(
            f"mainspring_{name}", description, labels, buckets=buckets, registry=self.registry
        )


class BoundedLabels:
    """Labels from names that tenants choose: the first `most`, then one for the rest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER_LABEL
            self._known.add(name)
        return name[:128]
