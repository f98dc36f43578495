"""`mainspring serve` and `mainspring worker`: open the service, accept requests, run jobs and drain
on exit."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from ipaddress import ip_address, ip_network

import anyio
import msgspec
from anyio import Event

from mainspring import __version__
from mainspring.capabilities.network.outbound_http import fetch_issuer_keys
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.connections import bind_sockets
from mainspring.edges.api.request_observers import (
    AuditObserver,
    MetricsObserver,
    access_log,
    webhook_observer,
)
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.route_table import all_routes
from mainspring.edges.api.routes.operate.health import (
    HealthRoutes,
    MetricsRoutes,
    operations_application,
)
from mainspring.edges.cli.operate.process_user import drop_privileges, service_user
from mainspring.edges.cli.operate.serve_options import ServeOptions, WorkerOptions
from mainspring.edges.cli.render.printing import Screen, print_note, sanitize_text
from mainspring.edges.dashboard.sign_in import CookieAccess
from mainspring.log.event_chain import Scrub
from mainspring.log.records import RecordQuery
from mainspring.log.task_groups import run_in_background
from mainspring.service.access.api_keys import ensure_first_key
from mainspring.service.access.oidc_issuers import OidcIssuer
from mainspring.service.approvals import approval_record
from mainspring.service.authorization.authentication import Authenticator
from mainspring.service.authorization.oidc_tokens import CombinedTokens, open_tokens
from mainspring.service.jobs import parking
from mainspring.service.jobs.worker import WorkerSettings
from mainspring.service.schedules.local_schedule import ScheduleStatus
from mainspring.service.service import Service, sync_schedule
from mainspring.service.service_worker import WorkerConfig
from mainspring.service.telemetry.health import (
    Health,
    HealthCheck,
    LoopHeartbeat,
    check_migrations,
    check_not_draining,
    check_store,
)
from mainspring.service.telemetry.instrumentation import StoreGauges
from mainspring.service.telemetry.logging_setup import log_to_stream
from mainspring.service.telemetry.metrics import Metrics
from mainspring.service.telemetry.telemetry_setup import Telemetry, open_telemetry
from mainspring.service.webhooks.webhook_deliveries import MeteredPoster
from mainspring.service.webhooks.webhook_endpoints import DELIVERY_KIND
from mainspring.wiring.sandbox_settings import private_files
from mainspring.wiring.service_assembly import open_service
from mainspring.wiring.stores import schema_status
from mainspring.wiring.user_vault import known_secrets
from mainspring.wiring.worker_assembly import WorkerMachine, open_worker

_LOG = logging.getLogger("mainspring.serve")
_BOUNDARY = (
    "MAINSPRING_CONTAINER_IS_BOUNDARY is set: where no sandbox works, only this container isolates"
    " agents' programs from the machine, so it serves one tenant"
)
_MAX_PORT = 65535  # of TCP
_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


async def serve(settings: Settings, *, options: ServeOptions, worker_options: WorkerOptions) -> int:
    """Serve the Managed Agents API and run its sessions.

    The first start creates an admin key and shows it once. Point any client of the Managed Agents
    API at the address, with that key.
    """
    proxies = frozenset(_parse_proxy(proxy) for proxy in options.proxies or ())
    address, works = (options.host, options.port), options.has_worker
    async with (
        _bind_and_drop_privileges(settings, worker_options, address) as (user_settings, ports),
        _open_service(user_settings, worker_options, ports.metrics, works=works) as dependencies,
    ):
        service = dependencies.service
        issuers = await _read_issuers(options.oidc)
        tokens = CombinedTokens(
            service.sessions.work_tokens, open_tokens(issuers, fetch_issuer_keys)
        )
        records = service.infrastructure.store.records
        api = Api(
            all_routes(service, *dependencies.operations()),
            access_control=CookieAccess(
                Authenticator(
                    records, token_verifier=tokens, sessions=service.sessions.sessions.repository
                ),
                service.access.browser_sessions,
            ),
            request_observers=(
                AuditObserver(
                    service.access.audit, alarm=dependencies.telemetry.metrics.audit_failures.inc
                ),
                webhook_observer(service.webhooks.outbox.notify),
                MetricsObserver(dependencies.telemetry.metrics),
                access_log,
            ),
            proxies=proxies,
            repeated=service.access.repeated,
        )
        async with http_server(api.application(), ports.api) as url:
            # created only when it can be shown: a failed start must not use it up
            first = await ensure_first_key(
                service.infrastructure.store.records, adopted=user_settings.admin_key
            )
            _print_start(user_settings, options, url, first)
            _print_schedule(user_settings, await sync_schedule(service))
            if options.has_worker:
                await dependencies.work()
            else:
                await dependencies.closing.wait()
            service.sessions.event_streams.close()
            service.views.feed.close()
    return 0


async def worker(settings: Settings, *, options: WorkerOptions) -> int:
    """Run sessions of a service on this machine. Needs the store of the service (`--store
    postgresql://...`), the same MAINSPRING_WORKSPACES on a shared disk, and the same vault key."""
    async with (
        _bind_and_drop_privileges(settings, options) as (user_settings, ports),
        _open_service(user_settings, options, ports.metrics) as dependencies,
    ):
        Screen(user_settings).line((f"working for {user_settings.store_label}", ""))
        await dependencies.work()
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningService:
    settings: Settings
    networks: tuple[Network, ...]
    service: Service
    telemetry: Telemetry
    options: WorkerOptions
    closing: Event
    loop_heartbeat: LoopHeartbeat
    store_gauges: StoreGauges
    works: bool

    @property
    def health(self) -> Health:
        checks: dict[str, HealthCheck] = {
            "store": check_store(self.service.infrastructure.store, clock.now),
            "tables": check_migrations(lambda: schema_status(self.settings.store)),
            "draining": check_not_draining(self.closing),
        }
        if self.works:
            checks["worker"] = self.loop_heartbeat.check
        is_boundary = self.settings.container_is_boundary
        if is_boundary:
            checks["one tenant"] = self.service.access.tenants.require_single
        return Health(checks, container_is_boundary=is_boundary)

    def operations(self) -> tuple[Route, ...]:
        return (
            *routes_of(HealthRoutes(self.health)),
            *routes_of(MetricsRoutes(self.telemetry.metrics, self.store_gauges)),
        )

    async def work(self) -> None:
        audit_days, workspace_days = self.options.audit_days, self.options.workspace_days
        config = WorkerConfig(
            worker_settings=WorkerSettings(
                concurrency=self.options.concurrency, drain_seconds=self.options.drain_seconds
            ),
            model=self.options.model,
            keep_audit=None if audit_days is None else timedelta(days=audit_days),
            keep_workspaces=timedelta(days=workspace_days) if workspace_days else None,
        )
        machine = WorkerMachine(settings=self.settings, networks=self.networks)
        async with open_worker(
            machine, self.service, self.telemetry, config, beat=self.loop_heartbeat.beat
        ) as worker:
            await worker.work(self.closing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BoundSockets:
    api: Sequence[socket.socket]
    metrics: Sequence[socket.socket]


@asynccontextmanager
async def _bind_and_drop_privileges(
    settings: Settings, options: WorkerOptions, api: tuple[str, int] | None = None
) -> AsyncGenerator[tuple[Settings, _BoundSockets], None]:
    """Binds ports as the starting user, then does everything else as the service's user."""
    metrics = None if options.metrics is None else _parse_address(options.metrics)
    user = service_user(settings, user=options.user, allow_root=options.allow_root)
    with ExitStack() as stack:
        api_sockets, metrics_sockets = [
            [] if at is None else [stack.enter_context(item) for item in await bind_sockets(*at)]
            for at in (api, metrics)
        ]
        own = settings if user is None else drop_privileges(user, settings)
        if (warning := private_files(own).require_apart()) is not None:
            print_note(own, f"warning: {warning}", "yellow")
        yield own, _BoundSockets(api=api_sockets, metrics=metrics_sockets)


def _sanitize_log_line(scrub: Scrub, line: bytes) -> bytes:
    return sanitize_text(scrub(line).decode("utf-8", "replace")).encode()


@asynccontextmanager
async def _open_service(
    settings: Settings,
    options: WorkerOptions,
    metrics_at: Sequence[socket.socket],
    *,
    works: bool = True,
) -> AsyncGenerator[_RunningService, None]:
    networks = tuple(_parse_network(network) for network in options.networks or ())
    scrub = Scrubber(known_secrets(settings))
    async with AsyncExitStack() as stack:
        level = options.level or settings.environment.get("MAINSPRING_LOG_LEVEL") or "info"
        clean = partial(_sanitize_log_line, scrub) if sys.stderr.isatty() else scrub
        stack.enter_context(log_to_stream(sys.stderr, scrub=clean, level=level, form=options.form))
        metrics = Metrics(version=__version__)
        service = await stack.enter_async_context(
            open_service(
                settings,
                networks=networks,
                tenant_limit=options.of_tenant,
                metered=lambda post: MeteredPoster(post, metrics),
            )
        )
        if settings.container_is_boundary:
            await service.access.tenants.require_single()
            _LOG.warning(_BOUNDARY)
        if options.model is not None:
            # so that a wrong name is reported now, not by every session
            service.infrastructure.models.facts(options.model)
        telemetry = await stack.enter_async_context(
            open_telemetry(
                service.infrastructure.log,
                metrics,
                environment=settings.environment,
                version=__version__,
            )
        )
        closing = Event()
        dependencies = _RunningService(
            settings=settings,
            networks=networks,
            service=service,
            telemetry=telemetry,
            options=options,
            closing=closing,
            loop_heartbeat=LoopHeartbeat(),
            store_gauges=_gauge_readers(service, metrics),
            works=works,
        )
        metrics.follow(metrics.streams_open, lambda: service.sessions.event_streams.count)
        if metrics_at:
            app = operations_application(dependencies.health, metrics, dependencies.store_gauges)
            await stack.enter_async_context(http_server(app, metrics_at))
        await stack.enter_async_context(run_in_background(lambda: _close_on_signal(closing)))
        yield dependencies


async def _close_on_signal(closing: Event) -> None:
    """The first signal ends the service in an orderly way; the second one at once."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            if closing.is_set():
                raise KeyboardInterrupt
            closing.set()


def _gauge_readers(service: Service, metrics: Metrics) -> StoreGauges:
    count = service.infrastructure.store.records.count
    waiting = RecordQuery(kind=approval_record.KIND, is_archived=False)
    return StoreGauges(
        metrics,
        sessions_parked=partial(count, RecordQuery(kind=parking.KIND)),
        deliveries_dead=partial(count, RecordQuery(kind=DELIVERY_KIND, label="dead")),
        approvals_waiting=partial(count, waiting),
        backlog=service.infrastructure.dispatcher.backlog,
    )


def _print_start(settings: Settings, options: ServeOptions, url: str, first: str | None) -> None:
    screen = Screen(settings)
    screen.line((f"serving the Managed Agents API at {url}", "bold"))
    if first is not None:
        screen.paragraph((f"admin key, shown this once: {first}", ""))
    if options.host not in _LOOPBACK_HOSTS:
        screen.paragraph(("it is not encrypted: put it behind a proxy that speaks TLS", "yellow"))


def _print_schedule(settings: Settings, status: ScheduleStatus | None) -> None:
    """Print the schedule in the agent.yaml of the served folder."""
    screen = Screen(settings)
    if status is None:
        return
    if status.problem is not None:
        screen.paragraph((f"warning: {sanitize_text(status.problem)}", "yellow"))
    elif (deployment := status.deployment) is not None:
        at = status.next_at
        when = "paused" if at is None else f"next at {at:%F %R} UTC"
        screen.paragraph((f"schedule of {deployment.name}: {when}; deployment {deployment.id}", ""))


async def _read_issuers(file: str | None) -> tuple[OidcIssuer, ...]:
    """Raises: InvalidInput."""
    if file is None:
        return ()
    try:
        content = await anyio.Path(file).read_bytes()
        return tuple(msgspec.json.decode(content, type=list[OidcIssuer]))
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{file}: {error}") from error


def _parse_network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InvalidInput(f"--allow-network {text}: {error}") from error


def _parse_proxy(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise InvalidInput(f"--trusted-proxy {text}: give its IP address") from error


def _parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MAX_PORT:
        raise InvalidInput(f"--metrics {text}: give it as 127.0.0.1:9090")
    return host.strip("[]") or "127.0.0.1", int(port)
