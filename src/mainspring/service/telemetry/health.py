"""Health checks: whether this process can do its work, and the reason if it cannot.

The answer is public, so it names no host, no path and no user data; the log has the details.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias

import anyio
from msgspec import UNSET, Struct, UnsetType

from mainspring.core.clock import Clock
from mainspring.core.errors import MainspringError
from mainspring.core.ids import new_id
from mainspring.log.migrate import SchemaStatus
from mainspring.log.records import Put, RecordRow, Remove
from mainspring.log.store import Store
from mainspring.service.access.tenants import ROOT_TENANT
from mainspring.service.storage.ttl_cache import TtlCache

_LOG = logging.getLogger("mainspring.health")
CHECK_SECONDS = 2.0  # for the store to answer
_MIGRATION_CACHE_SECONDS = 30.0  # tables change only with a release
_CACHE_KEY = ""
_PROBE = "probe"

HealthCheck: TypeAlias = Callable[[], Awaitable[str | None]]
"""Returns the reason for a failure; `None`: healthy. Our own errors count as a failed check."""


class CheckResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    ok: bool
    reason: str | None = None


class Readiness(Struct, frozen=True, kw_only=True):
    status: Literal["ready", "not_ready"]
    checks: dict[str, CheckResult]
    boundary: Literal["container"] | UnsetType = UNSET
    """The container is declared to be the boundary of agents' programs."""

    @property
    def is_ready(self) -> bool:
        return self.status == "ready"


class Health:
    def __init__(
        self,
        checks: Mapping[str, HealthCheck],
        *,
        seconds: float = CHECK_SECONDS,
        container_is_boundary: bool = False,
    ) -> None:
        self._checks = dict(checks)
        self._boundary: Literal["container"] | UnsetType = (
            "container" if container_is_boundary else UNSET
        )
        self._seconds = seconds

    async def ready(self) -> Readiness:
        """Run all checks concurrently; one that takes too long has failed."""
        results: dict[str, CheckResult] = {}

        async def run_check(name: str, check: HealthCheck) -> None:
            results[name] = await self._checked(name, check)

        async with anyio.create_task_group() as group:
            for name, check in self._checks.items():
                group.start_soon(run_check, name, check)
        checks = {name: results[name] for name in self._checks}
        is_ready = all(item.ok for item in checks.values())
        return Readiness(
            status="ready" if is_ready else "not_ready", checks=checks, boundary=self._boundary
        )

    async def _checked(self, name: str, check: HealthCheck) -> CheckResult:
        reason: str | None = f"no answer in {self._seconds:g} s"
        try:
            with anyio.move_on_after(self._seconds):
                reason = await check()
        except MainspringError as error:
            _LOG.warning("not ready: %s: %s", name, error)
            reason = f"{type(error).__name__}; the log of the process has the details"
        return CheckResult(ok=reason is None, reason=reason)


def check_store(store: Store, now: Clock) -> HealthCheck:
    """Whether the store can be read and written: on a full disk it can still be read."""

    async def check() -> None:
        await store.sessions(limit=1)
        moment = int(now().timestamp() * 1_000_000)
        probe = RecordRow(
            tenant=ROOT_TENANT,
            kind=_PROBE,
            id=new_id(_PROBE),
            created=moment,
            updated=moment,
            body=b"{}",
        )
        (written,) = await store.records.write(Put(row=probe))
        await store.records.write(Remove(row=written))

    return check


def check_migrations(
    read_status: Callable[[], Awaitable[SchemaStatus]],
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> HealthCheck:
    """Check that the schema is current. `read_status` is called at most twice a minute: it may need
    its own connection."""
    recent = TtlCache[str, SchemaStatus](
        lambda _: read_status(), seconds=_MIGRATION_CACHE_SECONDS, monotonic=monotonic
    )

    async def check() -> str | None:
        status = await recent.get(_CACHE_KEY)
        if status.current >= status.newest:  # newer is fine: an upgrade is in progress
            return None
        return (
            f"the tables have version {status.current}, and this version needs {status.newest}: run"
            " mainspring migrate"
        )

    return check


def check_not_draining(closing: anyio.Event) -> HealthCheck:
    async def check() -> str | None:
        return "draining: it accepts no new work and will exit" if closing.is_set() else None

    return check


class LoopHeartbeat:
    """Whether a loop is still alive: it calls `beat` in each iteration."""

    def __init__(
        self, *, seconds: float = 30.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`seconds`: how long the loop may be silent."""
        self._seconds = seconds
        self._monotonic = monotonic
        self._last = monotonic()

    def beat(self) -> None:
        self._last = self._monotonic()

    async def check(self) -> str | None:
        silent = self._monotonic() - self._last
        return f"silent for {silent:.0f} s" if silent > self._seconds else None
