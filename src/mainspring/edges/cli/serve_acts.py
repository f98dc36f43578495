"""What `serve` and `worker` do: open the house, let people in, work, and leave in good order."""

from __future__ import annotations

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
from mainspring.capabilities.network.rules import Network
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.api.app import Api, serving
from mainspring.edges.api.assembly import routes_of
from mainspring.edges.api.auditing import AuditWitness
from mainspring.edges.api.listening import bind
from mainspring.edges.api.route import Route
from mainspring.edges.api.routes.health import (
    HealthRoutes,
    MetricsRoutes,
    operations_application,
)
from mainspring.edges.api.telling import telling
from mainspring.edges.api.witnesses import MetricsWitness, access_log, together
from mainspring.edges.cli.printable import clean
from mainspring.edges.cli.render import Screen
from mainspring.log.background import running
from mainspring.log.chain import Scrub
from mainspring.log.records import Wanted
from mainspring.service.access.door import Door
from mainspring.service.access.issuers import Issuer
from mainspring.service.access.keys import ensure_first_key
from mainspring.service.approvals import record as approval_record
from mainspring.service.mail.webhooks import DELIVERY_KIND
from mainspring.service.watching.health import (
    Check,
    Health,
    Pulse,
    migrations_current,
    not_draining,
    store_answers,
)
from mainspring.service.watching.metering import Looks, MeteredPoster
from mainspring.service.watching.metrics import Metrics
from mainspring.service.work import parking
from mainspring.service.work.worker import Pace
from mainspring.wiring.house import open_house
from mainspring.wiring.identity import Either, open_tokens, published_keys
from mainspring.wiring.journal import journal
from mainspring.wiring.local_schedule import Following, follow_schedule
from mainspring.wiring.private_files import require_apart
from mainspring.wiring.privileges import become, service_user
from mainspring.wiring.rooms import House
from mainspring.wiring.scrub import scrubber
from mainspring.wiring.stores import standing
from mainspring.wiring.telemetry import Telemetry, telemetry
from mainspring.wiring.vaults import known_secrets
from mainspring.wiring.workshop import Orders, open_workshop

_MAX_PORT = 65535
_ANYWHERE = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    concurrency: int
    of_tenant: int | None
    drain_seconds: float
    model: str | None
    metrics: str | None
    level: str | None
    form: str
    audit_days: int | None
    workspace_days: int
    networks: tuple[str, ...]
    user: str | None
    allow_root: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    host: str
    port: int
    has_worker: bool
    oidc: str | None
    proxies: tuple[str, ...]
    work: Work


async def serve(settings: Settings, *, asked: Serve) -> int:
    proxies = frozenset(_proxy(each) for each in asked.proxies)
    async with (
        _unprivileged(settings, asked.work, (asked.host, asked.port)) as (own, ports),
        _opened(own, asked.work, ports.metrics, works=asked.has_worker) as premises,
    ):
        house = premises.house
        issuers = await _issuers(asked.oidc)
        tokens = Either(house.talk.work_tokens, open_tokens(issuers, published_keys))
        door = Door(house.ground.store.records, tokens=tokens)
        api = Api(
            routes_of(house, *premises.operations()),
            doorkeeper=door,
            witness=together(
                AuditWitness(
                    house.gatehouse.audit, alarm=premises.telemetry.metrics.audit_failures.inc
                ),
                telling(house.mail.outbox.notify),
                MetricsWitness(premises.telemetry.metrics),
                access_log,
            ),
            proxies=proxies,
            repeated=house.gatehouse.repeated,
        )
        async with serving(api.application(), ports.api) as url:
            # not before it can be shown: a start that fails would take it along
            first = await ensure_first_key(house.ground.store.records, adopted=own.admin_key)
            _welcome(own, asked, url, first)
            _tell_schedule(own, await follow_schedule(house, own))
            if asked.has_worker:
                await premises.work()
            else:
                await premises.closing.wait()
            house.talk.streams.close()
    return 0


async def work(settings: Settings, *, asked: Work) -> int:
    async with (
        _unprivileged(settings, asked) as (own, ports),
        _opened(own, asked, ports.metrics) as premises,
    ):
        Screen(own).line((f"working for {own.place}", ""))
        await premises.work()
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Premises:
    house: House
    telemetry: Telemetry
    asked: Work
    closing: Event
    pulse: Pulse
    looks: Looks
    works: bool

    @property
    def health(self) -> Health:
        settings = self.house.ground.settings

        checks: dict[str, Check] = {
            "store": store_answers(self.house.ground.store),
            "tables": migrations_current(lambda: standing(settings.store)),
            "draining": not_draining(self.closing),
        }
        if self.works:
            checks["worker"] = self.pulse.check
        return Health(checks)

    def operations(self) -> tuple[Route, ...]:
        return (
            *HealthRoutes(self.health).routes(),
            *MetricsRoutes(self.telemetry.metrics, self.looks).routes(),
        )

    async def work(self) -> None:
        days, kept = self.asked.audit_days, self.asked.workspace_days
        orders = Orders(
            pace=Pace(concurrency=self.asked.concurrency, drain_seconds=self.asked.drain_seconds),
            model=self.asked.model,
            keep_audit=None if days is None else timedelta(days=days),
            keep_workspaces=timedelta(days=kept) if kept else None,
        )
        async with open_workshop(
            self.house, self.telemetry, orders, beat=self.pulse.beat
        ) as worker:
            await worker.work(self.closing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    api: Sequence[socket.socket]
    metrics: Sequence[socket.socket]


@asynccontextmanager
async def _unprivileged(
    settings: Settings, asked: Work, api: tuple[str, int] | None = None
) -> AsyncGenerator[tuple[Settings, _Ports], None]:
    """Ports are bound as whoever started us, all else is done as the user of the service."""
    metrics = None if asked.metrics is None else _address(asked.metrics)
    user = service_user(settings, user=asked.user, allow_root=asked.allow_root)
    with ExitStack() as stack:
        ports = _Ports(
            **{
                name: () if at is None else [stack.enter_context(each) for each in await bind(*at)]
                for name, at in (("api", api), ("metrics", metrics))
            }
        )
        own = settings if user is None else become(user, settings)
        if (told := require_apart(own)) is not None:
            Screen(own, stderr=True).whole((f"warning: {told}", "yellow"))
        yield own, ports


def _shown(scrub: Scrub, line: bytes) -> bytes:
    return clean(scrub(line).decode("utf-8", "replace")).encode()


@asynccontextmanager
async def _opened(
    settings: Settings, asked: Work, metrics_at: Sequence[socket.socket], *, works: bool = True
) -> AsyncGenerator[_Premises, None]:
    networks = tuple(_network(each) for each in asked.networks)
    scrub = scrubber(known_secrets(settings))
    async with AsyncExitStack() as stack:
        level = asked.level or settings.environment.get("MAINSPRING_LOG_LEVEL") or "info"
        shown = partial(_shown, scrub) if sys.stderr.isatty() else scrub
        stack.enter_context(journal(sys.stderr, scrub=shown, level=level, form=asked.form))
        metrics = Metrics(version=__version__)
        house = await stack.enter_async_context(
            open_house(
                settings,
                networks=networks,
                tenant_limit=asked.of_tenant,
                metered=lambda post: MeteredPoster(post, metrics),
            )
        )
        if asked.model is not None:
            house.ground.shelf.facts(asked.model)  # a wrong name is told now, not by every session
        watching = await stack.enter_async_context(
            telemetry(
                house.ground.log, metrics, environment=settings.environment, version=__version__
            )
        )
        closing = Event()
        premises = _Premises(
            house=house,
            telemetry=watching,
            asked=asked,
            closing=closing,
            pulse=Pulse(),
            looks=_looks(house, watching),
            works=works,
        )
        watching.metrics.follow(watching.metrics.streams_open, lambda: house.talk.streams.count)
        if metrics_at:
            app = operations_application(premises.health, watching.metrics, premises.looks)
            await stack.enter_async_context(serving(app, metrics_at))
        await stack.enter_async_context(running(lambda: _until_told(closing)))
        yield premises


async def _until_told(closing: Event) -> None:
    """The first signal has it end in good order; the second at once."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            if closing.is_set():
                raise KeyboardInterrupt
            closing.set()


def _looks(house: House, watching: Telemetry) -> Looks:
    records = house.ground.store.records

    async def parked() -> int:
        return await records.count(Wanted(kind=parking.KIND))

    async def dead() -> int:
        return await records.count(Wanted(kind=DELIVERY_KIND, label="dead"))

    async def asked() -> int:
        return await records.count(Wanted(kind=approval_record.KIND, is_archived=False))

    return Looks(
        watching.metrics,
        sessions_parked=parked,
        deliveries_dead=dead,
        approvals_waiting=asked,
    )


def _welcome(settings: Settings, asked: Serve, url: str, first: str | None) -> None:
    screen = Screen(settings)
    screen.line((f"serving the Managed Agents API at {url}", "bold"))
    if first is not None:
        screen.whole((f"admin key, shown this once: {first}", ""))
    if asked.host not in _ANYWHERE:
        screen.whole(("it is not encrypted: put it behind a proxy that speaks TLS", "yellow"))


def _tell_schedule(settings: Settings, following: Following | None) -> None:
    """Of the agent.yaml in the folder that is served."""
    screen = Screen(settings)
    if following is None:
        return
    if following.problem is not None:
        screen.whole((f"warning: {clean(following.problem)}", "yellow"))
    elif following.deployment is not None:
        made = following.deployment
        when = "paused" if following.next_at is None else f"next at {following.next_at:%F %R} UTC"
        screen.whole((f"schedule of {made.name}: {when}; deployment {made.id}", ""))


async def _issuers(file: str | None) -> tuple[Issuer, ...]:
    """Raises: InvalidInput."""
    if file is None:
        return ()
    try:
        content = await anyio.Path(file).read_bytes()
        return tuple(msgspec.json.decode(content, type=list[Issuer]))
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(f"{file}: {error}") from error


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InvalidInput(f"--allow-network {text}: {error}") from error


def _proxy(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise InvalidInput(f"--trusted-proxy {text}: give its IP address") from error


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MAX_PORT:
        raise InvalidInput(f"--metrics {text}: give it as 127.0.0.1:9090")
    return host.strip("[]") or "127.0.0.1", int(port)
