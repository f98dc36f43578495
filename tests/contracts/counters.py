"""Contract: counters add up, whoever adds to them."""

from collections.abc import AsyncGenerator

from tests.at_once import at_once
from tests.contracts.store_setup import StoreFactory, refused

from mainspring.core.errors import InvalidInput
from mainspring.core.ids import new_id
from mainspring.log.records import Records


async def counters_add_up(open_store: StoreFactory) -> None:
    name = new_id("counter")
    async with open_store() as store, open_store() as other:
        assert await store.records.tally([(name, 0)]) == [0]
        assert await store.records.tally([(f"{name}.b", 5), (name, 2), (name, 0)]) == [5, 2, 2]
        assert await store.records.tally([(name, -3), (name, 1), (f"{name}.c", 0)]) == [0, 0, 0]

        async def count(records: Records) -> None:
            for _ in range(10):
                await records.tally([(name, 1), (f"{name}.b", 1)])
                await records.tally([(f"{name}.b", 1), (name, 1)])

        await at_once(lambda item: count(item.records), (store, other, store, other))
        assert await other.records.tally([(name, 0), (f"{name}.b", 0)]) == [80, 85]


async def a_counter_that_would_not_fit_is_left_as_it_was(open_store: StoreFactory) -> None:
    name = new_id("counter")
    most = 2**63 - 1
    async with open_store() as store:
        assert await store.records.tally([(name, most)]) == [most]
        with refused(InvalidInput):
            await store.records.tally([(f"{name}.b", 1), (name, 1)])
        for counter in ((f"{name}\0", 1), (name, 2**63)):
            with refused(InvalidInput):
                await store.records.tally([counter])
        assert await store.records.tally([(name, 0), (f"{name}.b", 0)]) == [most, 0]


async def counters_are_forgotten_by_how_they_begin(open_store: StoreFactory) -> None:
    name = new_id("counter")
    async with open_store() as store:
        ends = ["", ".a", ".a\U0010ffff", ".b"]
        await store.records.tally([(name + end, number) for number, end in enumerate(ends, 1)])
        await store.records.forget_tallies(f"{name}.a")
        assert await store.records.tally([(name + end, 0) for end in ends]) == [1, 0, 0, 4]
        kept = [tally async for tally in _tallies(store.records) if tally[0].startswith(name)]
        assert kept == [(name, 1), (f"{name}.b", 4)]


async def _tallies(records: Records) -> AsyncGenerator[tuple[str, int]]:
    after = ""
    while page := await records.tallies(after=after, limit=1):
        for item in page:
            yield item
        after = page[-1][0]
