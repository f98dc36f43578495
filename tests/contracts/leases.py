"""Contract: one holder at a time, by the database's clock; whoever lost the lease is fenced."""

from dataclasses import replace

import anyio
from tests.at_once import at_once
from tests.contracts.store_setup import (
    StoreFactory,
    appending,
    draft,
    refused,
    says,
    scene,
    take_over,
    until,
)

from mainspring.core.errors import Fenced, LeaseHeld, SessionNotFound
from mainspring.core.ids import SESSION, new_id
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Lease, Store


async def a_held_session_is_not_given_to_another(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        with refused(LeaseHeld) as refusal:
            await other.acquire(at.id, owner="somebody else", seconds=60)
        assert refusal.error.owner == at.writer.lease.owner
        assert refusal.error.epoch == at.writer.lease.epoch
        assert 50 < refusal.error.seconds <= 60
        await at.writer.append(says("undisturbed"))


async def a_held_session_is_not_given_to_its_own_owner_again(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        with refused(LeaseHeld) as refusal:
            await at.store.acquire(at.id, owner=at.writer.lease.owner, seconds=60)
        assert refusal.error.owner == at.writer.lease.owner
        await at.writer.append(says("undisturbed"))


async def a_lease_seen_is_taken_over_at_once_and_its_holder_fenced(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at, open_store() as other:
        with refused(LeaseHeld) as refusal:
            await other.acquire(at.id, owner="next", seconds=60)
        seen = (refusal.error.owner, refusal.error.epoch)
        lease = await other.acquire(at.id, owner="next", seconds=60, instead_of=seen)
        assert lease.epoch == at.writer.lease.epoch + 1
        session = await at.store.session(at.id)
        assert (session.owner, session.epoch) == ("next", lease.epoch)
        with refused(Fenced):
            await at.store.renew(at.writer.lease)
        await other.renew(lease)


async def a_lease_that_is_not_the_one_seen_is_not_taken_over(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        lease = at.writer.lease
        for seen in (
            (lease.owner, lease.epoch - 1),
            (lease.owner, lease.epoch + 1),
            ("somebody else", lease.epoch),
        ):
            with refused(LeaseHeld):
                await at.store.acquire(at.id, owner="next", seconds=60, instead_of=seen)
        await at.store.renew(lease)


async def of_takeovers_at_once_exactly_one_succeeds(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        seen = (at.writer.lease.owner, at.writer.lease.epoch)
        won = await at_once(
            lambda number: (at.store, other)[number % 2].acquire(
                at.id, owner=f"worker {number}", seconds=60, instead_of=seen
            ),
            range(8),
            refusal=LeaseHeld,
        )
        assert [lease.epoch for lease in won] == [seen[1] + 1]


async def who_is_refused_is_told_who_holds_it(open_store: StoreFactory) -> None:
    async with open_store() as store, open_store() as other:
        session_id = (await SessionLog(store).create()).id
        owners = [f"worker {number}" for number in range(8)]
        holders: set[str] = set()

        async def come_and_go(store: Store, owner: str) -> None:
            for _ in range(20):
                try:
                    await store.release(await store.acquire(session_id, owner=owner, seconds=60))
                except LeaseHeld as held:
                    holders.add(held.owner)

        async with anyio.create_task_group() as group:
            for number, owner in enumerate(owners):
                group.start_soon(come_and_go, (store, other)[number % 2], owner)
        assert holders <= set(owners)


async def a_free_session_is_given_whatever_was_seen_before(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        seen = (at.writer.lease.owner, at.writer.lease.epoch)
        await at.writer.release()
        lease = await at.store.acquire(at.id, owner="next", seconds=60, instead_of=seen)
        assert lease.epoch > seen[1] + 1


async def of_acquires_at_once_exactly_one_succeeds(open_store: StoreFactory) -> None:
    async with open_store() as store, open_store() as other:
        log = SessionLog(store)
        for _ in range(5):
            session = await log.create()
            won = await at_once(
                lambda number, id_=session.id: (store, other)[number % 2].acquire(
                    id_, owner=f"worker {number}", seconds=60
                ),
                range(8),
                refusal=LeaseHeld,
            )
            assert len(won) == 1
            assert (await store.session(session.id)).owner == won[0].owner


async def an_expired_lease_is_taken_over_and_its_holder_fenced(open_store: StoreFactory) -> None:
    async with open_store() as store, open_store() as other:
        session = await SessionLog(store).create()
        stale = await store.acquire(session.id, owner="slow", seconds=0.2)
        taken: list[Lease] = []

        async def taken_over() -> bool:
            try:
                taken.append(await other.acquire(session.id, owner="quick", seconds=60))
            except LeaseHeld:
                return False
            return True

        await until(taken_over)
        assert taken[0].epoch > stale.epoch
        with refused(Fenced):
            await store.renew(stale)
        with refused(Fenced):
            await store.append(appending(stale, session.head, draft(says("late"))))
        await store.release(stale)
        assert (await store.session(session.id)).owner == "quick"
        await other.append(appending(taken[0], session.head, draft(says("on time"))))


async def an_expired_lease_that_nobody_took_still_holds(open_store: StoreFactory) -> None:
    async with open_store() as store:
        session = await SessionLog(store).create()
        lease = await store.acquire(session.id, owner="slow", seconds=0.05)

        async def has_expired() -> bool:
            return (await store.session(session.id)).owner is None

        await until(has_expired)
        await store.append(
            appending(replace(lease, seconds=60), session.head, draft(says("no harm done")))
        )
        assert (await store.session(session.id)).owner == "slow"


async def renewing_makes_a_lease_last(open_store: StoreFactory) -> None:
    async with open_store() as store:
        session = await SessionLog(store).create()
        lease = await store.acquire(session.id, owner="me", seconds=5)
        await store.renew(replace(lease, seconds=60))
        with refused(LeaseHeld) as refusal:
            await store.acquire(session.id, owner="you", seconds=5)
        assert refusal.error.seconds > 50


async def appending_makes_a_lease_last(open_store: StoreFactory) -> None:
    async with open_store() as store:
        session = await SessionLog(store).create()
        lease = await store.acquire(session.id, owner="me", seconds=5)
        await store.append(
            appending(replace(lease, seconds=60), session.head, draft(says("alive")))
        )
        with refused(LeaseHeld) as refusal:
            await store.acquire(session.id, owner="you", seconds=5)
        assert refusal.error.seconds > 50


async def a_released_session_is_free_at_once(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.release()
        assert (await at.store.session(at.id)).owner is None
        lease = await at.store.acquire(at.id, owner="next", seconds=60)
        assert lease.epoch > at.writer.lease.epoch


async def who_has_let_go_cannot_append_any_more(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.release()
        with refused(Fenced):
            await at.writer.append(says("one more thing"))
        with refused(Fenced):
            await at.writer.renew()
        await at.writer.release()


async def releasing_a_replaced_lease_does_not_free_the_session(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        stale = at.writer.lease
        await take_over(at.store, stale)
        await at.store.release(stale)
        with refused(LeaseHeld):
            await at.store.acquire(at.id, owner="somebody else", seconds=60)


async def renewing_a_lease_on_an_unknown_session_is_refused(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        lost = replace(at.writer.lease, session_id=new_id(SESSION))
        with refused(SessionNotFound):
            await at.store.renew(lost)
        await at.store.release(lost)
