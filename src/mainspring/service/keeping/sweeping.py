"""Removing all that belongs to one thing, however many there are: a few hundred at a time."""

from __future__ import annotations

from mainspring.core.errors import NotFound, Stale
from mainspring.log.records import Records, Remove, Wanted

_BATCH = 200


async def sweep(records: Records, kind: str, *, tenant: str, parent: str) -> list[str]:
    """The ids of what was there. What appears meanwhile is removed too."""
    gone: list[str] = []
    wanted = Wanted(kind=kind, tenant=tenant, parent=parent, limit=_BATCH)
    while found := await records.list(wanted):
        try:
            await records.write(*(Remove(record=each) for each in found))
        except (Stale, NotFound):  # somebody changed one: look again
            continue
        gone += (each.id for each in found)
    return gone
