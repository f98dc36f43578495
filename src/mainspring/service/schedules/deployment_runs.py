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
from mainspring.log.records import Put, RecordQuery, RecordRow, Records
from mainspring.service.schedules.deployment_types import DeploymentRun, ScheduledRun
from mainspring.service.storage.pagination import Page, decode_cursor, encode_cursor
from mainspring.service.storage.repository import IndexColumns, Repository

RUN_KIND = "deployment_run"
_ONE_MICROSECOND = timedelta(microseconds=1)


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
        self._repository = Repository(
            records, RUN_KIND, DeploymentRun, columns=_index_columns, clock=clock
        )

    async def get(self, tenant: str, run_id: str) -> DeploymentRun:
        return await self._repository.get(tenant, run_id)

    def put_change(self, tenant: str, run: DeploymentRun) -> Put:
        return self._repository.put_change(tenant, run)

    async def page(self, tenant: str, listing: RunListing) -> Page[DeploymentRun]:
        """Newest first.

        Raises: InvalidInput: a cursor of another list.
        """
        after = None if listing.page is None else _cursor_record(tenant, listing.page)
        found: list[RecordRow] = []
        for label in listing.labels:
            found += await self._records.list(
                RecordQuery(
                    kind=RUN_KIND,
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
            data=[self._repository.read(record) for record in shown],
            next_page=encode_cursor(shown[-1].created, shown[-1].id) if has_more else None,
        )


def just_after(moment: datetime) -> datetime:
    """The first that is later."""
    return moment if moment.year == MAXYEAR else moment + _ONE_MICROSECOND


def just_before(moment: datetime) -> datetime:
    return moment if moment.year == MINYEAR else moment - _ONE_MICROSECOND


def _cursor_record(tenant: str, cursor: str) -> RecordRow:
    match decode_cursor(cursor):
        case [int(created), str(id_)]:
            return RecordRow(
                tenant=tenant, kind=RUN_KIND, id=id_, created=created, updated=created, body=b""
            )
        case _:
            raise InvalidInput("page: not a cursor of this list")


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _label(trigger: str, has_error: bool) -> str:
    return f"{trigger}.{'failed' if has_error else 'started'}"


def _index_columns(run: DeploymentRun) -> IndexColumns:
    trigger = "schedule" if isinstance(run.trigger_context, ScheduledRun) else "manual"
    return IndexColumns(parent=run.deployment_id, label=_label(trigger, run.error is not None))
