"""Contract: reading a stretch of a log, either way, filtered or not."""

from dataclasses import replace

from tests.contracts.store_setup import (
    ENDLESS,
    Scene,
    StoreFactory,
    appending,
    draft,
    foreign,
    refused,
    says,
    scene,
    texts,
)

from mainspring.core.errors import SessionNotFound
from mainspring.core.ids import SESSION, new_id
from mainspring.log.session_log import SessionLog
from mainspring.log.store import EventRange


async def _seqs(at: Scene, **asked: object) -> list[int]:
    """What reading the whole log gives, but for what is `asked` otherwise."""
    span = replace(EventRange(session_id=at.id, after=0, upto=ENDLESS), **asked)
    return [row.seq for row in await at.store.read(span)]


async def _fill(at: Scene) -> None:
    """Events 1 to 7: messages but for 1, 4 and 6; 2, 3 and 7 on thread a, 5 on thread b."""
    await at.store.append(
        appending(
            at.writer.lease,
            at.writer.head,
            draft(says("2"), "sthr_a"),
            draft(says("3"), "sthr_a"),
            foreign(b'{"type":"other.thing"}', "other.thing"),
            draft(says("5"), "sthr_b"),
            foreign(b'{"type":"other.thing"}', "other.thing"),
            draft(says("7"), "sthr_a"),
        )
    )


async def reading_gives_what_lies_after_one_seq_and_up_to_another(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await _fill(at)
        assert await _seqs(at) == [1, 2, 3, 4, 5, 6, 7]
        assert await _seqs(at, after=3) == [4, 5, 6, 7]
        assert await _seqs(at, after=2, upto=5) == [3, 4, 5]
        assert await _seqs(at, after=7) == []
        assert await _seqs(at, after=5, upto=4) == []


async def reading_stops_at_the_limit(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await _fill(at)
        assert await _seqs(at, after=1, limit=2) == [2, 3]
        assert [event.seq for event in await at.log.read(at.id, after=1, limit=2)] == [2, 3]


async def reading_backwards_gives_the_newest_first(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await _fill(at)
        assert await _seqs(at, backwards=True, limit=3) == [7, 6, 5]
        assert await _seqs(at, after=1, upto=4, backwards=True) == [4, 3, 2]
        assert await _seqs(at, types=frozenset({"other.thing"}), backwards=True) == [6, 4]


async def reading_can_be_limited_to_types_and_threads(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await _fill(at)
        assert await _seqs(at, types=frozenset({"other.thing"})) == [4, 6]
        assert await _seqs(at, types=frozenset({"other.thing", "agent.message"}), limit=2) == [2, 3]
        assert await _seqs(at, threads=frozenset({"sthr_a"})) == [2, 3, 7]
        assert await _seqs(
            at, threads=frozenset({"sthr_b"}), types=frozenset({"agent.message"})
        ) == [5]
        assert await _seqs(at, types=frozenset({"no.such"})) == []
        assert await _seqs(at, types=frozenset[str]()) == []


async def the_tail_is_the_last_events_in_order(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(*(says(f"{number}") for number in range(50)))
        assert texts(await at.log.tail(at.id, 3)) == ["47", "48", "49"]
        assert len(await at.log.tail(at.id, 1000)) == 51


async def a_long_log_is_read_to_its_end_across_pages(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        for _ in range(5):
            await at.writer.append(*(says("x") for _ in range(500)))
        assert [event.seq for event in await at.log.read(at.id)] == list(range(1, 2502))
        assert len(await at.log.read(at.id, types=["agent.message"])) == 2500
        assert [event.seq for event in await at.log.read(at.id, after=2499)] == [2500, 2501]


async def reading_an_unknown_session_gives_no_rows(open_store: StoreFactory) -> None:
    async with open_store() as store:
        nobody = new_id(SESSION)
        assert await store.read(EventRange(session_id=nobody, after=0, upto=ENDLESS)) == []
        with refused(SessionNotFound):
            await SessionLog(store).read(nobody)
