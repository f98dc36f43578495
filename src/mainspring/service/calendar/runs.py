"""Runs of deployments: what became of each fire, for good. Firing is `firing.py`'s."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from itertools import product
from typing import Literal

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import InvalidInput
from mainspring.core.ids import DeploymentId
from mainspring.log.records import Put, Record, Records, Wanted
from mainspring.service.calendar.model import BySchedule, DeploymentRun
from mainspring.service.keeping.drawer import Drawer, Tabs
from mainspring.service.keeping.page import Page, cursor_of, place_of

KIND = "deployment_run"
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListing:
    limit: int = 20
    page: str | None = None
    deployment_id: DeploymentId | None = None
    has_error: bool | None = None
    trigger_type: Literal["schedule", "manual"] | None = None
    created_from: datetime | None = None
    created_upto: datetime | None = None

    @property
    def labels(self) -> list[str | None]:
        """One of these is the label of each run that is wanted; `None`: whatever it is."""
        if self.has_error is None and self.trigger_type is None:
            return [None]
        triggers = (self.trigger_type,) if self.trigger_type else ("schedule", "manual")
        ends = (True, False) if self.has_error is None else (self.has_error,)
        return [_label(trigger, has_error) for trigger, has_error in product(triggers, ends)]


class DeploymentRuns:
    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._records = records
        self._drawer = Drawer(records, KIND, DeploymentRun, tabs=_tabs, clock=clock)

    async def get(self, tenant: str, run_id: str) -> DeploymentRun:
        return await self._drawer.get(tenant, run_id)

    def putting(self, tenant: str, run: DeploymentRun) -> Put:
        return self._drawer.putting(tenant, run)

    async def page(self, tenant: str, listing: RunListing) -> Page[DeploymentRun]:
        """Newest first.

        Raises: InvalidInput: a cursor of another list.
        """
        after = None if listing.page is None else _seen(tenant, listing.page)
        found: list[Record] = []
        for label in listing.labels:
            found += await self._records.list(
                Wanted(
                    kind=KIND,
                    tenant=tenant,
                    parent=listing.deployment_id,
                    label=label,
                    created_from=_micros(listing.created_from),
                    created_upto=_micros(listing.created_upto),
                    after=after,
                    limit=listing.limit + 1,
                )
            )
        found.sort(key=lambda record: (record.created, record.id), reverse=True)
        shown = found[: listing.limit]
        has_more = len(found) > listing.limit
        return Page(
            data=[self._drawer.read(record) for record in shown],
            next_page=cursor_of(shown[-1].created, shown[-1].id) if has_more else None,
        )


def after(moment: datetime) -> datetime:
    """The first that is later."""
    return moment if moment.year == MAXYEAR else moment + _TICK


def before(moment: datetime) -> datetime:
    return moment if moment.year == MINYEAR else moment - _TICK


def _seen(tenant: str, cursor: str) -> Record:
    match place_of(cursor):
        case [int(created), str(id_)]:
            return Record(
                tenant=tenant, kind=KIND, id=id_, created=created, updated=created, body=b""
            )
        case _:
            raise InvalidInput("page: not a cursor of this list")


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _label(trigger: str, has_error: bool) -> str:
    return f"{trigger}.{'failed' if has_error else 'started'}"


def _tabs(run: DeploymentRun) -> Tabs:
    trigger = "schedule" if isinstance(run.trigger_context, BySchedule) else "manual"
    return Tabs(parent=run.deployment_id, label=_label(trigger, run.error is not None))
