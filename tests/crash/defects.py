"""Stores that are broken on purpose: each breaks one promise, and the kit must notice."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from tests.crash.stores import Opener, open_store

from mainspring.core.errors import LeaseHeld
from mainspring.log.store import Append, InboxItem, Lease, Store


class _Broken:
    """Passes on whatever a defect does not change."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the store has)
        return getattr(self.store, name)


class _Early(_Broken):
    """Says that an append is written and writes it when something else is asked for."""

    _late: Append | None = None

    async def append(self, append: Append) -> None:
        await self._flush()
        self._late = append

    async def acquire(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float,
        instead_of: tuple[str, int] | None = None,
    ) -> Lease:
        await self._flush()
        return await self.store.acquire(
            session_id, owner=owner, seconds=seconds, instead_of=instead_of
        )

    async def _flush(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            await self.store.append(late)


class _Dropping(_Broken):
    """Loses the last row of a batch."""

    async def append(self, append: Append) -> None:
        rows = append.rows[:-1] if len(append.rows) > 1 else append.rows
        await self.store.append(append._replace(rows=rows))


class _Tearing(_Broken):
    """Writes a batch row by row."""

    async def append(self, append: Append) -> None:
        expected = append.expected
        for index, row in enumerate(append.rows):
            is_last = index == len(append.rows) - 1
            head = append.head if is_last else expected._replace(seq=row.seq)
            if not is_last:
                head = head._replace(hash=append.rows[index + 1].prev)
            folded = append.folded_items[index : index + 1]
            step = append._replace(rows=[row], expected=expected, head=head, folded_items=folded)
            await self.store.append(step)
            expected = head


class _Unfenced(_Broken):
    """Lets any writer append, whoever holds the lease."""

    async def append(self, append: Append) -> None:
        session = await self.store.session(append.lease.session_id)
        await self.store.append(append._replace(lease=replace(append.lease, epoch=session.epoch)))


class _Sharing(_Broken):
    """Gives a lease that somebody has to the next who asks."""

    async def acquire(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float,
        instead_of: tuple[str, int] | None = None,
    ) -> Lease:
        try:
            return await self.store.acquire(
                session_id, owner=owner, seconds=seconds, instead_of=instead_of
            )
        except LeaseHeld:
            epoch = (await self.store.session(session_id)).epoch
            return Lease(session_id=session_id, owner=owner, epoch=epoch, seconds=seconds)


class _Forgetful(_Broken):
    """Does not know a client's event again."""

    async def submit(self, session_id: str, item: InboxItem) -> InboxItem:
        kept = await self.store.submit(session_id, item)
        if kept.event_id == item.event_id:
            return kept
        renamed = item._replace(client_id=f"{item.client_id}.{item.event_id}")
        stored = await self.store.submit(session_id, renamed)
        return stored._replace(client_id=item.client_id)


def _opener(broken: Callable[[Store], _Broken]) -> Opener:
    @asynccontextmanager
    async def opened(url: str) -> AsyncGenerator[Store]:
        async with open_store(url) as store:
            yield cast("Store", broken(store))

    return opened


acknowledges_early = _opener(_Early)
drops_a_row = _opener(_Dropping)
tears_batches = _opener(_Tearing)
ignores_the_epoch = _opener(_Unfenced)
shares_leases = _opener(_Sharing)
forgets_clients = _opener(_Forgetful)
